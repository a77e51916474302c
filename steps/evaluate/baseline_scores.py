"""Score the baselines on the test split: their metrics, and their scores if the workload has any.

The summary of a split (``steps.shard.split_summary``) has the split's manifests, but no shard of
it.
"""

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from steps.evaluate.score_table import Scores, write_scores
from training.data.dataset import Dataset
from training.scores import Block
from training.workloads import Workload, load_spec

READ = 1 << 20  # names of examples that are read at a time


@dataclass(frozen=True, slots=True)
class TrainSplit:
    """The train split, or its summary, on which the baselines are fitted."""

    folder: Path
    """Folder of the train split's manifests."""
    split: Dataset
    """The split; if there is a summary, only its manifests, so that no sample can be read."""
    sample: Dataset
    """Samples on which the baselines are fitted."""
    example_names: Dataset | None
    """Names of all examples; None without a summary, because then the workload names them."""

    @classmethod
    def open(cls, inputs: Path) -> Self:
        """Open the train split in the job's inputs: ``summary``, or ``train`` if it is missing."""
        folder = inputs / "summary"
        if not folder.is_dir():
            train = Dataset(inputs / "train")
            return cls(inputs / "train", train, train, None)
        example_names = Dataset(folder / "examples")
        return cls(folder, Dataset(folder), Dataset(folder / "sample"), example_names)

    def iter_examples(self, workload: Workload) -> Iterator[Block]:
        """Yield blocks with the column ``example``, and ``group`` if the data has groups."""
        return (
            workload.examples(self.split)
            if self.example_names is None
            else self.example_names.iter_batches(READ)
        )


def compute_baselines(
    options: argparse.Namespace, name: str, workload: Workload, train: TrainSplit, test: Dataset
) -> dict[str, dict[str, float]]:
    """Return each baseline's metrics, {baseline: {metric: value}}; ``name`` is the workload's.

    If the workload scores baselines, also write the scores to ``baseline-<baseline>.parquet``, with
    the same rows as the challenger's. The metrics are computed from these files, like those of the
    models.
    """
    workload_spec, limit = load_spec(name), options.baseline_units
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
    """Write a baseline's scores, ``blocks``, to a file; return {metric: value} computed from it.

    Args:
        name: name of the workload.
        sha256: hash of the baseline's model, if it is a model.
        train: fingerprint of the data on which it was fitted, if known.
    """
    table = f"baseline-{baseline}"
    path = options.root / f"processing/output/scores/{table}.parquet"
    header = {
        "model": table,
        "champion": None,
        "test_fingerprint": test.fingerprint,
        "train_fingerprint": train,
        "artifact_sha256": sha256,
        "metrics": dict(load_spec(name).metrics),
    }
    write_scores(path, blocks, header)
    metrics = workload.metrics(Scores(path))
    return {metric: entry["value"] for metric, entry in metrics.items()}
