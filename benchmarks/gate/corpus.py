"""Scores of two models in the format that Evaluate writes, as many as one wants."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
from rich.progress import Progress

CHAMPION = "arn:aws:sagemaker:us-east-1:123456789012:model-package/benchmark/1"
METRICS = ("loss", "bits_per_byte")
SLICES = [f"value-{number}" for number in range(30)]
ROWS = 2**17
GROUP = 20
"""Examples of a group, on average."""


def write(root: Path, examples: int, progress: Progress) -> Path:
    """evaluation.json and both files of scores below ``root``, unless they are there."""
    inputs = root / "processing/input"
    if (inputs / "evaluation/evaluation.json").exists():
        return root
    for name in ("scores", "evaluation"):
        (inputs / name).mkdir(parents=True, exist_ok=True)
    totals = {model: np.zeros(len(METRICS) + 1) for model in ("challenger", "champion")}
    paths = {model: inputs / f"scores/{model}.parquet" for model in totals}
    bar = progress.add_task(f"writing {examples:,} scores", total=examples)
    with (
        parquet.ParquetWriter(paths["challenger"], _schema("challenger")) as challenger,
        parquet.ParquetWriter(paths["champion"], _schema("champion")) as champion,
    ):
        writers = {"challenger": challenger, "champion": champion}
        for first in range(0, examples, ROWS):
            rows = min(ROWS, examples - first)
            for model, columns in _columns(first, rows, examples).items():
                writers[model].write_table(pa.table(columns, schema=_schema(model)))
                sums = [columns[f"{metric}.sum"].sum() for metric in METRICS]
                totals[model] += [*sums, columns[f"{METRICS[0]}.weight"].sum()]
            progress.advance(bar, rows)
    progress.remove_task(bar)
    text = json.dumps(_evaluation(totals))
    (inputs / "evaluation/evaluation.json").write_text(text)
    return root


def _columns(first: int, rows: int, examples: int) -> dict[str, dict]:
    source = np.random.default_rng(first)
    groups = source.integers(0, max(1, examples // GROUP), rows)
    weight = source.integers(1, 2000, rows).astype(float)
    shared = {
        "example": source.integers(-(2**63), 2**63 - 1, rows),
        "group": groups,
        "slice.topic": pa.DictionaryArray.from_arrays(
            source.integers(0, len(SLICES), rows).astype(np.int32), SLICES
        ),
    }
    hard = source.gamma(4, 0.25, rows)
    found = {}
    for model, better in (("challenger", 0.01), ("champion", 0.0)):
        loss = (hard + source.normal(-better, 0.1, rows)) * weight
        found[model] = shared | {
            "loss.sum": loss,
            "loss.weight": weight,
            "bits_per_byte.sum": loss / np.log(2),
            "bits_per_byte.weight": weight,
        }
    return found


def _schema(model: str) -> pa.Schema:
    described = {
        "format": 1,
        "model": model,
        "champion": CHAMPION,
        "test_fingerprint": "test",
        "train_fingerprint": "train",
        "artifact_sha256": model,
        "metrics": dict.fromkeys(METRICS, "lower"),
    }
    numbers = [f"{metric}.{part}" for metric in METRICS for part in ("sum", "weight")]
    fields = [
        ("example", pa.int64()),
        ("group", pa.int64()),
        ("slice.topic", pa.dictionary(pa.int32(), pa.string())),
        *((name, pa.float64()) for name in numbers),
    ]
    return pa.schema(fields, metadata={"trainyard": json.dumps(described)})


def _evaluation(totals: dict[str, np.ndarray]) -> dict:
    metrics = {
        model: {m: {"value": sums[n] / sums[-1]} for n, m in enumerate(METRICS)}
        for model, sums in totals.items()
    }
    return {
        "metrics": metrics["challenger"],
        "champion": {"arn": CHAMPION, "metrics": metrics["champion"]},
        "dataset": {"fingerprint": "both", "test_fingerprint": "test"},
        "artifact": {"bytes": 1, "sha256": "challenger"},
    }
