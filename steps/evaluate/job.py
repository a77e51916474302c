"""Score the trained model and the baselines on the test split.

python steps/evaluate/job.py [--baseline_units N]
"""

import argparse
import gzip
import hashlib
import json
import math
import sys
import tarfile
import zlib
from pathlib import Path
from typing import Any

import torch

from errors import DataError
from steps.edge import run
from training.artifact import open_artifact
from training.data.dataset import Dataset
from training.data.manifest import write_atomically
from training.data.verify import sha256_of


def evaluate(options: argparse.Namespace) -> None:
    """Write evaluation.json: metrics, baselines, what they were measured on."""
    inputs = options.root / "processing/input"
    workload, model, description = open_artifact(_extract(inputs / "model"))
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    train, test = Dataset(inputs / "train"), Dataset(inputs / "test")
    if description["train_fingerprint"] != train.fingerprint:
        raise DataError(
            f"the model was trained on dataset {description['train_fingerprint']}, the baselines "
            f"would be fitted on {train.fingerprint}; run the train step on this dataset"
        )
    evaluation = {
        "metrics": workload.evaluate(model, test),
        "baselines": workload.baselines(train, test, options.baseline_units),
        "dataset": {
            "fingerprint": _together(train.fingerprint, test.fingerprint),
            "train_fingerprint": train.fingerprint,
            "test_fingerprint": test.fingerprint,
            "train_samples": len(train),
            "test_samples": len(test),
            "test_records": test.records,
        },
        "model": {
            key: description[key]
            for key in ("steps", "parameters", "world_size", "packages_sha256")
        },
        "artifact": _evidence(inputs / "model/model.tar.gz"),
    }
    output = options.root / "processing/output/evaluation"
    output.mkdir(parents=True, exist_ok=True)
    text = json.dumps(_without_nan(evaluation), indent=1, allow_nan=False)
    write_atomically(output / "evaluation.json", text.encode())
    print(text, flush=True)


def _evidence(archive: Path) -> dict[str, Any]:
    """What names the artifact: its size in bytes and SHA-256."""
    return {"bytes": archive.stat().st_size, "sha256": sha256_of(archive)}


def _together(*fingerprints: str) -> str:
    """One fingerprint for several splits."""
    return hashlib.sha256("\n".join(fingerprints).encode()).hexdigest()


def _without_nan(value: Any) -> Any:
    """JSON has no NaN: null instead, which the gate rejects as missing."""
    if isinstance(value, dict):
        return {key: _without_nan(inner) for key, inner in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _extract(folder: Path) -> Path:
    """The folder with the model's files, unpacked from model.tar.gz.

    Raises:
        DataError: there is none, or it is damaged or would write outside its folder.
    """
    archive = folder / "model.tar.gz"
    if not archive.is_file():
        raise DataError(f"{archive}: is missing; the train step left no model")
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(folder / "model", filter="data")
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise DataError(f"{archive}: cannot be unpacked: {error}") from None
    return folder / "model"


def parse(arguments: list[str]) -> argparse.Namespace:
    """The job's arguments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--baseline_units", type=int, default=50_000_000)
    parser.add_argument("--root", type=Path, default=Path("/opt/ml"), help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    options = parse(sys.argv[1:] if arguments is None else arguments)
    run(lambda: evaluate(options), options.root / "output/message")


if __name__ == "__main__":
    main()
