"""An application's additions to the terminal's view of its runs; ``watch`` alone shows any run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from trainyard.runs.execution import Execution, Step

Metrics = dict[str, dict[str, float]]
"""Title of a step → name of a metric → its latest value."""


def training_metrics(execution: Execution, steps: Mapping[str, Step]) -> Metrics:
    """Return the latest metrics of every training job of the run.

    Raises:
        ServiceError: AWS refused or cannot be reached.
    """
    jobs = {step.title: step.job for step in steps.values() if step.job}
    metrics_by_title = {
        title: latest(execution.training_job(name))
        for title, (kind, name) in jobs.items()
        if kind == "TrainingJob"
    }
    return {title: metrics for title, metrics in metrics_by_title.items() if metrics}


def latest(job: Mapping[str, Any]) -> dict[str, float]:
    """Return name → value from DescribeTrainingJob's FinalMetricDataList."""
    entries = job.get("FinalMetricDataList", ())
    return {
        entry["MetricName"]: entry["Value"]
        for entry in entries
        if {"MetricName", "Value"} <= {*entry}
    }


def metrics_table(execution: Execution, steps: Mapping[str, Step]) -> Table | None:
    """Return a table of these metrics for a terminal; None if no training job has any."""
    metrics_by_title = training_metrics(execution, steps)
    if not metrics_by_title:
        return None
    table = Table(box=None, pad_edge=False)
    table.add_column("training")
    table.add_column("metric")
    table.add_column("value", justify="right")
    for title, metrics in metrics_by_title.items():
        for name, value in metrics.items():
            table.add_row(title, name, f"{value:,.6g}")
    return table


Steps = Mapping[str, Step]
"""The steps of an execution that have begun, by name."""


def _unknown(job: Mapping[str, Any]) -> tuple[float, float] | None:
    return None


def _nothing(execution: Execution, job: Mapping[str, Any]) -> str:
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Display:
    """Additions to the terminal's steps, times, failures and model package."""

    watch: str = "trainyard watch"
    """Command that watches such a run."""
    tables: tuple[Callable[[Execution, Steps], RenderableType | None], ...] = (metrics_table,)
    """Tables of the summary, below the steps; None for an empty one."""
    progress: Callable[[Mapping[str, Any]], tuple[float, float] | None] = _unknown
    """DescribeTrainingJob's answer → (steps done, all steps); None: not known."""
    warns: Callable[[Execution, Mapping[str, Any]], str] = _nothing
    """A running training job → a warning about its progress; empty if all is well."""


# Display of a run's steps in a terminal.

COLOURS = {
    "Succeeded": "green",
    "Failed": "red",
    "Stopped": "yellow",
    "Stopping": "yellow",
    "Executing": "cyan",
}


def steps_table(steps: list[Step]) -> Table:
    """Return a table with step, status, time: one row each, in the order in which they began."""
    table = Table(box=None, pad_edge=False)
    table.add_column("step")
    table.add_column("status")
    table.add_column("time", justify="right")
    for step in steps:
        table.add_row(step.title, status_text(step), duration(step.seconds))
    return table


def status_text(step: Step) -> Text:
    """Return the step's status in its colour, noting an earlier result or a waiting callback."""
    return Text(f"{step.status}{_aside(step)}", style=COLOURS.get(step.status, ""))


def _aside(step: Step) -> str:
    if step.cached:
        return " (cached)"
    if step.reused:
        return " (reused)"
    token = step.metadata.get("Callback", {}).get("CallbackToken")
    waits = token and step.status in ("Executing", "Stopping")
    return f" (waits: trainyard callback {token})" if waits else ""


def duration(seconds: float | None) -> str:
    """Return ``4.2 s``, ``3 min 05 s``, ``2 h 10 min``; empty for None."""
    if seconds is None:
        return ""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"
