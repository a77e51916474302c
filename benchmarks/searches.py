"""The recipe recipes/tuned.yaml beside its default values, at equal total compute.

Each seed: a search of the recipe, as it is; then the default values, once as long as one training,
and once as many optimizer steps as all trainings of that search together. All are trained,
evaluated and gated by the very pipeline on the emulator; compared is the loss on the test split.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import mean, stdev
from typing import Annotated, Any
from unittest.mock import patch

import typer
from rich.table import Table
from scipy.stats import t as student

from benchmarks.harness import CHECKOUT, JsonFile, keep
from pipelines.run_report.run_documents import read_evaluation
from pipelines.run_report.run_panels import read_search
from trainyard.emulator.server import Endpoint, serve
from trainyard.runs.execution import Execution
from trainyard.terminal import console

RECIPE, PIPELINE, METRIC, LEVEL = "recipes/tuned.yaml", "trainyard-tuned", "log_loss", 0.95
OPEN = "gate={min_accuracy: 0}"
"""A gate that passes all: what is compared are the models."""


def main(
    seeds: Annotated[int, typer.Option(min=2, help="Searches, each with a seed of its own.")] = 5,
    first: Annotated[int, typer.Option(help="The first seed.")] = 0,
    json_file: JsonFile = None,
) -> None:
    """Compare the models on the test split, and print the differences with their intervals."""
    rows = []
    with tempfile.TemporaryDirectory() as folder, serve(state=Path(folder)) as endpoint:
        verb(endpoint, "corpus")
        for seed in range(first, first + seeds):
            rows.append(compared(endpoint, seed))
            console.print(f"seed {seed}: {rows[-1]}")
    table = Table("against", "test log loss", f"tuned better by ({LEVEL:.0%} interval)", box=None)
    tuned = [row["tuned"] for row in rows]
    table.add_row("tuned itself", f"{mean(tuned):.4f}", "")
    found = {name: interval([row[name] - row["tuned"] for row in rows]) for name in BESIDE}
    for name, (value, low, high) in found.items():
        loss = mean(row[name] for row in rows)
        table.add_row(BESIDE[name], f"{loss:.4f}", f"{value:+.4f} ({low:+.4f} to {high:+.4f})")
    console.print(table)
    keep(json_file, {"rows": rows, "better_by": found})


BESIDE = {
    "default": "default values, one training long",
    "longer": "default values, as many steps as the whole search",
}


def compared(endpoint: Endpoint, seed: int) -> dict[str, Any]:
    """Return the test losses of one seed, and the optimizer steps of the whole search."""
    of_seed = [f"train.loop.seed={seed}", OPEN]
    execution = run(endpoint, *of_seed, f"tune.seed={seed}")
    with patch.dict(os.environ, endpoint.env):
        found = Execution(execution)
        search = read_search(found, {step.name: step for step in found.steps()})
    assert search is not None
    steps = sum(trial_steps(endpoint, trial["job"]) for trial in search["trials"])
    return {
        "tuned": loss(endpoint, execution),
        "default": loss(endpoint, run(endpoint, *of_seed, "tune=null")),
        "longer": loss(
            endpoint, run(endpoint, *of_seed, "tune=null", f"train.loop.max_steps={steps}")
        ),
        "steps": steps,
        "stopped": sum(trial["stopped"] for trial in search["trials"]),
    }


def trial_steps(endpoint: Endpoint, job: str) -> int:
    """Return the optimizer steps that a training has logged."""
    with patch.dict(os.environ, endpoint.env):
        values = Execution("", "us-east-1").training_job(job)["FinalMetricDataList"]
    return round(next(one["Value"] for one in values if one["MetricName"] == "train:step"))


def loss(endpoint: Endpoint, execution: str) -> float:
    """Return the model's loss on the test split."""
    with patch.dict(os.environ, endpoint.env):
        found = Execution(execution)
        evaluation = read_evaluation(found, {step.name: step for step in found.steps()})
    assert evaluation is not None
    return float(evaluation["metrics"][METRIC]["value"])


def run(endpoint: Endpoint, *settings: str) -> str:
    """Upsert and run the recipe; return the execution's ARN."""
    verb(endpoint, "upsert", *settings, words=("--start", "--wait"))
    with patch.dict(os.environ, endpoint.env):
        import boto3

        listed = boto3.client("sagemaker").list_pipeline_executions(PipelineName=PIPELINE)
    return str(listed["PipelineExecutionSummaries"][0]["PipelineExecutionArn"])


def verb(endpoint: Endpoint, name: str, *settings: str, words: tuple[str, ...] = ()) -> None:
    """Run a verb of the recipe, as a user does."""
    sets = [word for one in settings for word in ("--set", one)]
    done = subprocess.run(
        [sys.executable, "-m", f"pipelines.{name}", "--recipe", RECIPE, *sets, *words],
        cwd=CHECKOUT, env=os.environ | endpoint.env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"pipelines.{name} {json.dumps(settings)}: {done.stdout}{done.stderr}")


def interval(values: list[float]) -> tuple[float, float, float]:
    """Return (mean, low, high) by Student's t."""
    reach = student.ppf((1 + LEVEL) / 2, len(values) - 1) * stdev(values) / len(values) ** 0.5
    return mean(values), mean(values) - reach, mean(values) + reach


if __name__ == "__main__":
    typer.run(main)
