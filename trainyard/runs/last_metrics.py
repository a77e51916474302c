"""The metrics of any run's training jobs: what MetricDefinitions found in their logs."""

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from trainyard.runs.execution import Execution, Step

Metrics = dict[str, dict[str, float]]
"""Title of a step → name of a metric → its latest value."""


def training_metrics(execution: Execution, steps: Mapping[str, Step]) -> Metrics:
    """The latest metrics of every training job of the run.

    Raises:
        ServiceError: AWS refused or cannot be reached.
    """
    jobs = {step.title: step.job for step in steps.values() if step.job}
    found = {
        title: latest(execution.training_job(name))
        for title, (kind, name) in jobs.items()
        if kind == "TrainingJob"
    }
    return {title: metrics for title, metrics in found.items() if metrics}


def latest(job: Mapping[str, Any]) -> dict[str, float]:
    """Name → value of DescribeTrainingJob's FinalMetricDataList."""
    told = job.get("FinalMetricDataList", ())
    return {one["MetricName"]: one["Value"] for one in told if {"MetricName", "Value"} <= {*one}}


def metrics_table(execution: Execution, steps: Mapping[str, Step]) -> Table | None:
    """A table of these metrics for a terminal; None where no training job has any."""
    found = training_metrics(execution, steps)
    if not found:
        return None
    table = Table(box=None, pad_edge=False)
    table.add_column("training")
    table.add_column("metric")
    table.add_column("value", justify="right")
    for title, metrics in found.items():
        for name, value in metrics.items():
            table.add_row(title, name, f"{value:,.6g}")
    return table
