"""The baselines on the test split: their metrics, and their scores where there are any."""

import argparse
from collections.abc import Iterable

from steps.evaluate.scores import Scores, write
from steps.evaluate.train_split import TrainSplit
from training.data.dataset import Dataset
from training.scores import Block
from training.workloads import Workload, spec


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
