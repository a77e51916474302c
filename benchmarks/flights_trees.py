"""Network, trees and logistic regression on the same flights: python -m benchmarks.flights_trees

The flights recipe runs as ``make run RECIPE=recipes/flights.yaml`` runs it, on an embedded AWS of
its own; some three minutes on two quiet cores. Then, of the scores that its Evaluate step left,
each two models' difference on the same rows, with the gate's own limits over days: of the log loss
as gate.json has it, of the AUC by the rows' pulls (DeLong), which are a sum over days, too.

With --peer XGBoost and scikit-learn's trees on the run's shards: the same held-out days choose the
rounds, each fit in a process of its own, in turn; CPU seconds, and the memory that it took more.
"""

import json as json_format
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow.parquet as parquet
import torch
import typer
from rich.console import Console
from rich.table import Table

from conditions.paired import Improvement, improvement
from pipelines.recipe.reading import load as load_recipe
from training.data.dataset import Dataset
from training.workloads import load
from training.workloads.tabular.boosted_trees import (
    LEARNING_RATE,
    MOST_ROUNDS,
    PATIENCE,
    BoostedTrees,
    Columns,
)
from training.workloads.tabular.held_out import held_out
from training.workloads.tabular.model import Encoder
from training.workloads.tabular.scores import Ranks, columns, values
from trainyard.service import client

CHECKOUT = Path(__file__).parent.parent
RECIPE = CHECKOUT / "recipes/flights.yaml"
CONFIDENCE = 0.95
MODELS = {
    "challenger": "network",
    "baseline-boosted_trees": "boosted trees",
    "baseline-logistic_regression": "logistic regression",
}
"""Table of scores → what it is called here."""
CONTENDERS = ("scikit-learn", "xgboost")
Scores = Mapping[str, np.ndarray]


def main(
    peer: Annotated[bool, typer.Option("--peer", help="XGBoost beside scikit-learn's.")] = False,
    rounds: Annotated[int, typer.Option(min=1, help="Of --peer.")] = 3,
    json: Annotated[Path | None, typer.Option(help="Write the figures here.")] = None,
    fetch: Annotated[Path | None, typer.Option(hidden=True)] = None,
    alone: Annotated[str | None, typer.Option(hidden=True)] = None,
    shards: Annotated[Path | None, typer.Option(hidden=True)] = None,
) -> None:
    """Run the recipe, and print who predicts the held-out flights better."""
    if fetch:
        return _run_and_fetch(fetch)
    if alone and shards:
        return print(json_format.dumps(_alone(alone, shards)))
    console = Console(width=None if sys.stdout.isatty() else 120)
    with tempfile.TemporaryDirectory(prefix="flights-") as folder:
        outputs = Path(folder) / "outputs"
        inner = [sys.executable, "-m", "benchmarks.flights_trees", "--fetch", outputs]
        emulator = [sys.executable, "-m", "trainyard", "run", "--state", f"{folder}/state", "--"]
        subprocess.run([*emulator, *inner], cwd=CHECKOUT, check=True)
        models = {
            name: _scores(outputs / f"scores/{file}.parquet") for file, name in MODELS.items()
        }
        figures: dict[str, Any] = {"models": _values(models), "differences": _differences(models)}
        if peer:
            figures["peer"] = _peer(outputs, rounds)
    _show(console, figures)
    if json:
        json.write_text(json_format.dumps(figures, indent=1))


def _run_and_fetch(into: Path) -> None:
    """Within an embedded AWS: the run, then its scores and shards into ``into``."""
    done = subprocess.run(
        ["scripts/main-job.sh", RECIPE], cwd=CHECKOUT, stdout=subprocess.PIPE, text=True, check=True
    )
    sys.stdout.write(done.stdout)
    [arn] = set(re.findall(r"arn:aws:sagemaker:\S+/execution/\w+", done.stdout))
    for step, output in (("Evaluate", "scores"), ("Shard", "train"), ("Shard", "test")):
        _download(_output_uri(arn, step, output), into / output)


def _output_uri(arn: str, step: str, output: str) -> str:
    sagemaker = client("sagemaker")
    steps = sagemaker.list_pipeline_execution_steps(PipelineExecutionArn=arn)
    [job] = [s["Metadata"]["ProcessingJob"]["Arn"] for s in steps["PipelineExecutionSteps"]
             if s["StepName"] == step]  # fmt: skip
    described = sagemaker.describe_processing_job(ProcessingJobName=job.rpartition("/")[2])
    outputs = described["ProcessingOutputConfig"]["Outputs"]
    return next(o["S3Output"]["S3Uri"] for o in outputs if o["OutputName"] == output)


def _download(uri: str, into: Path) -> None:
    s3, where = client("s3"), urlsplit(uri)
    prefix = where.path.lstrip("/") + "/"
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=where.netloc, Prefix=prefix)
    for item in (item for page in pages for item in page["Contents"]):
        path = into / item["Key"].removeprefix(prefix)
        path.parent.mkdir(parents=True, exist_ok=True)
        s3.download_file(where.netloc, item["Key"], str(path))


def _scores(path: Path) -> Scores:
    table = parquet.read_table(path)
    names = ("example", "group", "probability", "label", "log_loss.sum", "log_loss.weight")
    return {name: table.column(name).to_numpy() for name in names}


def _values(models: Mapping[str, Scores]) -> dict[str, dict[str, float]]:
    return {
        name: {"log_loss": float(found["log_loss.sum"].mean()), "auc": _ranks(found).auc()}
        for name, found in models.items()
    }


def _ranks(found: Scores) -> Ranks:
    ranks = Ranks()
    ranks.add(found)
    return ranks


def _differences(models: Mapping[str, Scores]) -> list[dict[str, Any]]:
    """Of each two models, how much better the first is, with the gate's limits over days."""
    found = []
    for first, second in combinations(models, 2):
        one, other = models[first], models[second]
        assert np.array_equal(one["example"], other["example"])
        _, day = np.unique(one["group"], return_inverse=True)
        gain = other["log_loss.sum"] - one["log_loss.sum"]
        metrics = {"log_loss": gain, "auc": _auc_gain(one, other)}
        for metric, rows in metrics.items():
            limits = improvement(
                np.bincount(day, rows), np.bincount(day).astype(float), CONFIDENCE, in_order=True
            )
            found.append(_row(first, second, metric, limits))
    return found


def _auc_gain(one: Scores, other: Scores) -> np.ndarray:
    """What each row adds to the difference of the areas, times the number of rows."""
    ours, theirs = _ranks(one), _ranks(other)
    pull = ours.pulls(one) - theirs.pulls(other)
    return pull * len(pull) + (ours.auc() - theirs.auc())


def _row(first: str, second: str, metric: str, limits: Improvement) -> dict[str, Any]:
    return {
        "model": first,
        "over": second,
        "metric": metric,
        "better_by": limits.value,
        "low": limits.low,
        "high": limits.high,
        "days": limits.effective_groups,
    }


def _peer(outputs: Path, rounds: int) -> dict[str, list[dict[str, float]]]:
    """Contender → what each of its fits gave."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in CONTENDERS}
    for number in range(rounds):
        for name in CONTENDERS if number % 2 else reversed(CONTENDERS):
            command = [sys.executable, "-m", "benchmarks.flights_trees", "--alone", name]
            done = subprocess.run(
                [*command, "--shards", outputs], cwd=CHECKOUT, capture_output=True, check=True,
                env=os.environ | {"OMP_WAIT_POLICY": "passive"},  # as in the evaluate job
            )  # fmt: skip
            found[name].append(json_format.loads(done.stdout))
    return found


def _alone(name: str, outputs: Path) -> dict[str, float]:
    """One fit: its metrics on the test split, CPU seconds, MB that the peak grew by."""
    train, test = Dataset(outputs / "train"), Dataset(outputs / "test")
    workload = load("tabular", load_recipe(RECIPE).workload.config)
    workload.fit(train)
    encoder = Encoder(workload.features, workload.config.clip)
    samples, held_back = train.read(np.arange(len(train))), test.read(np.arange(len(test)))
    before, began = _peak_mb(), time.process_time()
    if name == "xgboost":
        logits = _xgboost(encoder, samples, held_back)
    else:
        logits = BoostedTrees(encoder, samples).logits(held_back)
    spent = {"cpu_seconds": time.process_time() - began, "more_mb": _peak_mb() - before}
    block = {"group": held_back["group"], **columns(logits, held_back["label"])}
    return {n: v for n, v in values([block]).items() if n in ("log_loss", "auc")} | spent


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _xgboost(encoder: Encoder, samples: Any, test: Any) -> np.ndarray:
    """As ``BoostedTrees`` does it: the same columns, learning rate and choice of rounds."""
    import xgboost

    columns_ = Columns(encoder, samples)
    rows, asked = (columns_.of(part).astype(np.float32) for part in (samples, test))
    numbers = rows.shape[1] - len(columns_.categories)
    kinds = ["c"] * len(columns_.categories) + ["float"] * numbers
    settings = {"objective": "binary:logistic", "eta": LEARNING_RATE, "tree_method": "hist",
                "nthread": torch.get_num_threads()}  # fmt: skip

    def matrix(rows: np.ndarray, label: Any, like: Any = None) -> Any:
        return xgboost.QuantileDMatrix(
            rows, label, feature_types=kinds, enable_categorical=True, ref=like
        )

    label, held = samples["label"], held_out(samples)
    assert held is not None
    kept = matrix(rows[~held], label[~held])
    watched = [(matrix(rows[held], label[held], kept), "held_out")]
    model = xgboost.train(settings, kept, MOST_ROUNDS, evals=watched, verbose_eval=False,
                          early_stopping_rounds=PATIENCE)  # fmt: skip
    model = xgboost.train(settings, matrix(rows, label), model.best_iteration + 1)
    test_rows = xgboost.DMatrix(asked, feature_types=kinds, enable_categorical=True)
    return model.predict(test_rows, output_margin=True)


def _show(console: Console, figures: Mapping[str, Any]) -> None:
    table = Table("model", "log loss", "AUC", box=None)
    for name, found in figures["models"].items():
        table.add_row(name, f"{found['log_loss']:.4f}", f"{found['auc']:.4f}")
    console.print(table)
    table = Table("better by, on the same rows", "over", "metric", "", "limits", box=None)
    for row in figures["differences"]:
        limits = f"{row['low']:+.4f} to {row['high']:+.4f}"
        table.add_row(row["model"], row["over"], row["metric"], f"{row['better_by']:+.4f}", limits)
    console.print(table)
    console.print(f"one-sided limits, each with {CONFIDENCE:.0%} confidence, over "
                  f"{figures['differences'][0]['days']:.0f} effective days")  # fmt: skip
    for name, fits in figures.get("peer", {}).items():
        told = [f"{key} {statistics.median(fit[key] for fit in fits):.4g}" for key in fits[0]]
        console.print(f"{name}: {', '.join(told)} (median of {len(fits)})")


if __name__ == "__main__":
    typer.run(main)
