"""The baselines on the test split: their metrics, and their scores where there are any.

The summary (``steps.shard.split_summary``) holds the split's manifests, but no shard of it.
"""

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from steps.evaluate.score_table import Scores, write
from training.data.dataset import Dataset
from training.scores import Block
from training.workloads import Workload, spec

READ = 1 << 20  # names of examples at a time


@dataclass(frozen=True, slots=True)
class TrainSplit:
    """See above."""

    folder: Path
    """Where its manifests are."""
    split: Dataset
    """The split; of a summary its manifests alone, and no sample can be read."""
    sample: Dataset
    """What baselines are fitted on."""
    named: Dataset | None
    """The names of all examples; without a summary the workload is asked for them."""

    @classmethod
    def open(cls, inputs: Path) -> Self:
        """``summary`` among the job's inputs, or else ``train``."""
        folder = inputs / "summary"
        if not folder.is_dir():
            train = Dataset(inputs / "train")
            return cls(inputs / "train", train, train, None)
        named = Dataset(folder / "examples")
        return cls(folder, Dataset(folder), Dataset(folder / "sample"), named)

    def examples(self, workload: Workload) -> Iterator[Block]:
        """``example`` of every example, and ``group`` where the data have groups."""
        return workload.examples(self.split) if self.named is None else self.named.batches(READ)


def baselines(
    options: argparse.Namespace, name: str, workload: Workload, train: TrainSplit, test: Dataset
) -> dict[str, dict[str, float]]:
    """Baseline → metric → value; ``name`` is the workload's.

    Scores become ``baseline-<baseline>.parquet`` beside the challenger's, row for row, and the
    metrics are read off them, as those of the models are.
    """
    known, limit = spec(name), options.baseline_units
    if not known.baselines_scored:
        return workload.baselines(train.sample, test, limit)
    fingerprint = train.split.fingerprint
    return {
        baseline: scored(options, baseline, workload, name, test, blocks, train=fingerprint)
        for baseline, blocks in workload.baseline_scores(train.sample, test, limit).items()
    }


def scored(
    options: argparse.Namespace,
    baseline: str,
    workload: Workload,
    name: str,
    test: Dataset,
    blocks: Iterable[Block],
    sha256: str | None = None,
    train: str | None = None,
) -> dict[str, float]:
    """Metric → value of a baseline's scores, which are written first.

    Args:
        name: of the workload.
        sha256: of the model that the baseline is, if it is one.
        train: fingerprint of what it was fitted on, if that is known.
    """
    table = f"baseline-{baseline}"
    path = options.root / f"processing/output/scores/{table}.parquet"
    header = {
        "model": table,
        "champion": None,
        "test_fingerprint": test.fingerprint,
        "train_fingerprint": train,
        "artifact_sha256": sha256,
        "metrics": dict(spec(name).metrics),
    }
    write(path, blocks, header)
    metrics = workload.metrics(Scores(path))
    return {metric: measured["value"] for metric, measured in metrics.items()}
