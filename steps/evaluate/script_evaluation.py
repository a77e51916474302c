r"""Score the trained model and the champion with the user's script.

python steps/evaluate/job.py --script evaluate.py --metrics accuracy=higher \
    --channels test [--champion ARN] [--slices NAME …] [--arguments JSON …] [--leaks examples …]

The script runs once for each model (``steps.evaluate.script_process``), and the rows that it writes
become the gate's tables. Besides Python, only numpy and pyarrow are used, no torch and no pydantic,
because the image is the script's.
"""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from conditions.no_champion import NONE, UNRESOLVED_ARN
from steps.evaluate import evaluation_document, script_report
from steps.evaluate.evaluation_document import (
    Champion,
    Channel,
    Dataset,
    Evaluation,
    Latency,
    Model,
)
from steps.evaluate.score_table import Scores, list_tables
from steps.evaluate.script_process import Request, Script
from steps.evaluate.script_scoring import ScoredModel, Scoring
from trainyard.common.errors import DataError
from trainyard.common.hashes import hash_file, hash_json, hash_lines

TRAIN = "train"
"""Channel that is searched for leaked examples, but not tested on."""


def summarize_channel(name: str, folder: Path) -> Channel:
    """Return the channel's number of files and bytes, and one hash over all files.

    Raises:
        DataError: the channel is empty.
    """
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*")}
    files = {name: path for name, path in files.items() if path.is_file()}
    if not files:
        raise DataError(f"channel {name}: {folder} contains no files; check evaluate.channels")
    contents = {name: (files[name].stat().st_size, hash_file(files[name])) for name in files}
    return {
        "files": len(contents),
        "bytes": sum(size for size, _ in contents.values()),
        "sha256": hash_json(contents),
    }


def compute_test_fingerprint(channels: Mapping[str, Channel]) -> str:
    """Return one hash over all channels except TRAIN."""
    hashes = {name: channel["sha256"] for name, channel in channels.items() if name != TRAIN}
    return hash_json(hashes)


NOBODY = (NONE, UNRESOLVED_ARN)


def evaluate_models(options: argparse.Namespace) -> None:
    """Score the models, and write the tables of scores and then evaluation.json."""
    inputs = options.root / "processing/input"
    channels = {name: summarize_channel(name, inputs / name) for name in options.channels}
    scoring = _make_scoring(options, compute_test_fingerprint(channels))
    challenger = scoring.score_model("challenger", inputs / "model")
    description = _read_description(challenger.files)
    leaks = script_report.count_leaks(
        challenger.output, challenger.table, options.leaks, grouped=challenger.grouped
    )
    evaluation: Evaluation = {
        "metrics": challenger.metrics,
        "champion": _score_champion(options, scoring),
        "baselines": scoring.compute_baselines(challenger, options.baselines),
        "dataset": _build_dataset_entry(description.get("train_fingerprint"), channels, challenger),
        "leakage": leaks,
        "latency": _measure_latency(options, scoring, challenger),
        "artifact": challenger.artifact,
        "scores": list_tables(challenger.table.parent),
        "model": _build_model_entry(description),
    }
    evaluation_document.write_evaluation(options.root / "processing/output/evaluation", evaluation)


def _measure_latency(
    options: argparse.Namespace, scoring: Scoring, challenger: ScoredModel
) -> Latency | None:
    """Return the latency of the challenger's inference script; None without a sample request."""
    if options.request is None:
        return None
    out = challenger.output / "latency.json"
    latency: Any = scoring.script.measure_latency(challenger.files, Request(*options.request), out)
    return latency


def _make_scoring(options: argparse.Namespace, test_fingerprint: str) -> Scoring:
    inputs = options.root / "processing/input"
    return Scoring(
        root=options.root,
        script=Script(
            folder=inputs / "script",
            entry=options.script,
            arguments=format_arguments(options.arguments),
            channels={name: inputs / name for name in options.channels},
        ),
        metrics=options.metrics,
        slices=options.slices,
        champion=None if options.champion in NOBODY else options.champion,
        test_fingerprint=test_fingerprint,
    )


def _build_dataset_entry(
    train: str | None, channels: dict[str, Channel], challenger: ScoredModel
) -> Dataset:
    """Return evaluation.json's entry ``dataset``; ``train``: fingerprint of the training data."""
    test = compute_test_fingerprint(channels)
    rows = sum(len(block["example"]) for block in Scores(challenger.table))
    return {
        "fingerprint": hash_lines((train or "unknown", test)),
        "train_fingerprint": train,
        "test_fingerprint": test,
        "train_samples": None,
        "test_samples": rows,
        "test_records": rows,
        "train_manifests_sha256": None,
        "test_manifests_sha256": None,
        "channels": channels,
    }


def format_arguments(arguments: dict[str, Any]) -> list[str]:
    """Return the arguments as AWS's drivers pass them: ``--name value``, with values that are not
    text as JSON.
    """
    return [
        word
        for name, value in arguments.items()
        for word in (f"--{name}", value if isinstance(value, str) else json.dumps(value))
    ]


def _score_champion(options: argparse.Namespace, scoring: Scoring) -> Champion:
    """Score the champion; an error in it becomes a reason for the gate to reject, not a failure."""
    absent: Champion = {"arn": options.champion, "metrics": {}, "artifact": None, "error": None}
    if options.champion in NOBODY:
        return absent
    folder = options.root / "processing/input/champion"
    try:
        if (folder / "no-champion.json").exists():
            raise DataError("the parameter ChampionModelUri names no folder with its model.tar.gz")
        champion = scoring.score_model("champion", folder)
    except DataError as error:
        reason = f"champion {options.champion} cannot be compared: {error}"
        print(reason, flush=True)
        return {**absent, "error": reason}
    return {**absent, "metrics": champion.metrics, "artifact": champion.artifact}


def _read_description(files: Path) -> dict[str, Any]:
    """Return the train step's description of the model, or {} if the archive has none."""
    file = files / "code/trainyard.json"
    try:
        description = json.loads(file.read_bytes())
    except FileNotFoundError:  # another pipeline's model, or a model of a single file
        return {}
    except ValueError as error:
        raise DataError(f"{file}: is damaged: {error}; train the model again") from None
    return description if isinstance(description, dict) else {}


def _build_model_entry(description: dict[str, Any]) -> Model:
    """Return evaluation.json's entry ``model``; fields that ``description`` lacks are None."""
    training = description.get("training", {})
    return {
        "steps": description.get("steps"),
        "parameters": description.get("parameters"),
        "world_size": description.get("world_size"),
        "packages_sha256": description.get("packages_sha256"),
        "training": {
            "identity": training.get("identity"),
            "stretches": training.get("stretches", []),
        },
    }


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    """Parse the job's arguments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--script", required=True, help="name of its file in the input named script"
    )
    parser.add_argument("--metrics", nargs="+", required=True, metavar="NAME=lower|higher")
    parser.add_argument(
        "--channels", nargs="+", required=True, help="names of the inputs that it may read"
    )
    parser.add_argument(
        "--arguments", nargs="*", default=[], help="its arguments as JSON, in pieces"
    )
    parser.add_argument("--slices", nargs="*", default=[])
    parser.add_argument("--baselines", nargs="*", default=[])
    parser.add_argument("--leaks", nargs="*", default=[], choices=["examples", "groups"])
    parser.add_argument("--request", nargs=3, metavar=("FILE", "CONTENT_TYPE", "ACCEPT"))
    parser.add_argument(
        "--champion", default=UNRESOLVED_ARN, help="the champion's ARN, none, or unresolved"
    )
    parser.add_argument("--root", type=Path, default=Path("/opt/ml"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    options.metrics = dict(pair.split("=") for pair in options.metrics)
    options.arguments = json.loads("".join(options.arguments) or "{}")
    return options
