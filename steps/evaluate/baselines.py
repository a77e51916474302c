"""The baselines on the test split: their metrics, and their scores where there are any."""

import argparse

from steps.evaluate.scores import Scores, write
from training.data.dataset import Dataset
from training.workloads import Workload, spec


def baselines(
    options: argparse.Namespace, name: str, workload: Workload, train: Dataset, test: Dataset
) -> dict[str, dict[str, float]]:
    """Baseline → metric → value; ``name`` is the workload's.

    Scores become ``baseline-<baseline>.parquet`` beside the challenger's, row for row, and the
    metrics are read off them, as those of the models are.
    """
    known, limit = spec(name), options.baseline_units
    if not known.baselines_scored:
        return workload.baselines(train, test, limit)
    found = {}
    for baseline, blocks in workload.baseline_scores(train, test, limit).items():
        table = f"baseline-{baseline}"
        path = options.root / f"processing/output/scores/{table}.parquet"
        header = {
            "model": table,
            "champion": None,
            "test_fingerprint": test.fingerprint,
            "train_fingerprint": train.fingerprint,
            "artifact_sha256": None,
            "metrics": dict(known.metrics),
        }
        write(path, blocks, header)
        metrics = workload.metrics(Scores(path))
        found[baseline] = {metric: measured["value"] for metric, measured in metrics.items()}
    return found
