"""Evidence as Evaluate writes it: evaluation.json, and the scores of both models."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

CHAMPION = "arn:aws:sagemaker:us-east-1:123456789012:model-package/demo/7"
FINGERPRINTS = ("train_fingerprint", "test_fingerprint")


@dataclass
class Evidence:
    """A test split of ``groups`` groups, scored by two models of known difference.

    ``improvement``: by how much the challenger's mean loss is lower, in each group. ``bad_slice``:
    in slice ``kind=c`` its loss is higher by so much.
    """

    groups: int = 60
    per_group: int = 20
    improvement: float | np.ndarray = 0.05
    bad_slice: float = 0.0
    noise: float = 0.1
    champion: str | None = CHAMPION
    seed: int = 0
    rows: int = 500
    """In a row group."""
    baseline: float | None = None
    """By how much the challenger's mean loss is lower than that of the baseline ``trees``, in each
    group; None: the baseline has no scores."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """File → metadata that say something else."""

    def __post_init__(self) -> None:
        source = np.random.default_rng(self.seed)
        n = self.groups * self.per_group
        self.group = np.repeat(np.arange(self.groups), self.per_group)
        self.kind = np.array(["a", "b", "c"])[source.integers(0, 3, n)]
        self.weight = source.integers(1, 50, n).astype(float)
        hard = source.gamma(2.0, 1.0, n)
        moved = source.normal(self.improvement, self.noise, self.groups)[self.group]
        moved = moved - self.bad_slice * (self.kind == "c")
        self.sums = {"champion": hard * self.weight, "challenger": (hard - moved) * self.weight}
        if self.baseline is not None:
            ahead = source.normal(self.baseline, self.noise, self.groups)[self.group]
            self.sums["baseline-trees"] = self.sums["challenger"] + ahead * self.weight
        self.probability = source.uniform(0.01, 0.99, n).astype(np.float32)
        self.label = (source.uniform(size=n) < self.probability).astype(np.uint8)

    def mean(self, model: str) -> float:
        return float(self.sums[model].sum() / self.weight.sum())

    @property
    def models(self) -> list[str]:
        champion = ["champion"] if self.champion else []
        trees = ["baseline-trees"] if self.baseline is not None else []
        return ["challenger", *champion, *trees]

    def evaluation(self) -> dict[str, Any]:
        baselines = {"bigram": {"loss": 3.0}}
        if self.baseline is not None:
            baselines["trees"] = {"loss": self.mean("baseline-trees")}
        champion = {"loss": {"value": self.mean("champion")}} if self.champion else {}
        checked = {"checked_examples": len(self.group), "checked_groups": self.groups}
        return {
            "metrics": {"loss": {"value": self.mean("challenger")}},
            "baselines": baselines,
            "dataset": {name: name.partition("_")[0] for name in FINGERPRINTS}
            | {"fingerprint": "both"},
            "champion": {"arn": self.champion or "none", "metrics": champion},
            "artifact": {"bytes": 3_000_000, "sha256": "challenger's"},
            "latency": {"p50_ms": 2.0, "p95_ms": 4.0, "samples": 100, "device": "cpu"},
            "leakage": {"examples": 0, "groups": 0} | checked,
        }

    def table(self, model: str) -> pa.Table:
        described = {
            "format": 1, "model": model, "champion": self.champion or "none",
            "test_fingerprint": "test", "train_fingerprint": "train",
            "artifact_sha256": f"{model}'s", "metrics": {"loss": "lower"},
        } | self.changes.get(model, {})  # fmt: skip
        columns = {
            "example": pa.array(np.arange(len(self.group), dtype=np.int64)),
            "group": pa.array(self.group.astype(np.int64)),
            "slice.kind": pa.array(self.kind).dictionary_encode(),
            "loss.sum": pa.array(self.sums[model]),
            "loss.weight": pa.array(self.weight),
            "probability": pa.array(self.probability),
            "label": pa.array(self.label),
        }
        return pa.table(columns, metadata={b"trainyard": json.dumps(described).encode()})

    def write(self, root: Path) -> Path:
        """Into a container's folders below ``root``."""
        inputs = root / "processing/input"
        for name in ("evaluation", "scores"):
            (inputs / name).mkdir(parents=True, exist_ok=True)
        (inputs / "evaluation/evaluation.json").write_text(json.dumps(self.evaluation()))
        for model in self.models:
            path = inputs / f"scores/{model}.parquet"
            parquet.write_table(
                self.table(model), path, row_group_size=self.rows, write_page_checksum=True
            )
        return root
