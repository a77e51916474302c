"""Score the baselines on the test split: their metrics, and their scores where there are any.

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

READ = 1 << 20  # names of examples per read


@dataclass(frozen=True, slots=True)
class TrainSplit:
    """The train split, or its summary, that the baselines are fitted on."""

    folder: Path
    """Folder of its manifests."""
    split: Dataset
    """The split; with a summary only its manifests, so no sample can be read."""
    sample: Dataset
    """Samples that the baselines are fitted on."""
    example_names: Dataset | None
    """Names of all examples; None without a summary: the workload names them."""

    @classmethod
    def open(cls, inputs: Path) -> Self:
        """Open ``summary`` among the job's inputs, or else ``train``."""
        folder = inputs / "summary"
        if not folder.is_dir():
            train = Dataset(inputs / "train")
            return cls(inputs / "train", train, train, None)
        example_names = Dataset(folder / "examples")
        return cls(folder, Dataset(folder), Dataset(folder / "sample"), example_names)

    def examples(self, workload: Workload) -> Iterator[Block]:
        """Yield ``example`` of every example, and ``group`` where the data have groups."""
        return (
            workload.examples(self.split)
            if self.example_names is None
            else self.example_names.batches(READ)
        )


def baselines(
    options: argparse.Namespace, name: str, workload: Workload, train: TrainSplit, test: Dataset
) -> dict[str, dict[str, float]]:
    """Return baseline → metric → value; ``name`` is the workload's.

    Scores go into ``baseline-<baseline>.parquet`` beside the challenger's, row for row, and the
    metrics are read off them, as those of the models are.
    """
    workload_spec, limit = spec(name), options.baseline_units
    if not workload_spec.baselines_scored:
        return workload.baselines(train.sample, test, limit)
    fingerprint = train.split.fingerprint
    return {
        baseline: score_baseline(options, baseline, workload, name, test, blocks, train=fingerprint)
        for baseline, blocks in workload.baseline_scores(train.sample, test, limit).items()
    }


def score_baseline(
    options: argparse.Namespace,
    baseline: str,
    workload: Workload,
    name: str,
    test: Dataset,
    blocks: Iterable[Block],
    sha256: str | None = None,
    train: str | None = None,
) -> dict[str, float]:
    """Return metric → value of a baseline's scores, which are written first.

    Args:
        name: name of the workload.
        sha256: hash of the baseline's model, if it is a model.
        train: fingerprint of the data that it was fitted on, if known.
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
    return {metric: entry["value"] for metric, entry in metrics.items()}
