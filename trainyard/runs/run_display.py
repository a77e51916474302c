"""Show the steps, metrics and result of an execution ("run") in a terminal.

An application can add to it by a ``Display``; without one, any pipeline's execution can be shown.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from trainyard.runs.execution import Execution, Step
from trainyard.runs.why.diagnosis import Cause
from trainyard.runs.why.read_evidence import find_cause
from trainyard.terminal import console

Metrics = dict[str, dict[str, float]]
"""Mapping of a step's title to a mapping of a metric's name to its latest value."""


def read_training_metrics(execution: Execution, steps: Mapping[str, Step]) -> Metrics:
    """Return the latest metrics of the run's training jobs, without jobs that have none.

    Raises:
        ServiceError: AWS refused or cannot be reached.
    """
    jobs = {step.title: step.job for step in steps.values() if step.job}
    metrics_by_title = {
        title: read_latest_metrics(execution.describe_training_job(name))
        for title, (kind, name) in jobs.items()
        if kind == "TrainingJob"
    }
    return {title: metrics for title, metrics in metrics_by_title.items() if metrics}


def read_latest_metrics(job: Mapping[str, Any]) -> dict[str, float]:
    """Return a mapping of a metric's name to its latest value.

    It is read from FinalMetricDataList in ``job``, DescribeTrainingJob's response.
    """
    entries = job.get("FinalMetricDataList", ())
    return {
        entry["MetricName"]: entry["Value"]
        for entry in entries
        if {"MetricName", "Value"} <= {*entry}
    }


def build_metrics_table(execution: Execution, steps: Mapping[str, Step]) -> Table | None:
    """Return a table of the latest metrics for a terminal; None if no training job has any."""
    metrics_by_title = read_training_metrics(execution, steps)
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
"""Mapping of a name to a step, for the steps of an execution that have started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Display:
    """An application's additions to what the terminal shows of an execution."""

    watch: str = "trainyard watch"
    """Command that watches such an execution, for messages."""
    tables: tuple[Callable[[Execution, Steps], RenderableType | None], ...] = (build_metrics_table,)
    """Tables of the summary, below the steps; None for an empty one."""
    progress: Callable[[Mapping[str, Any]], tuple[float, float] | None] = lambda job: None
    """Returns (steps done, total steps) from DescribeTrainingJob's response; None if unknown."""
    warns: Callable[[Execution, Mapping[str, Any]], str] = lambda execution, job: ""
    """Returns a warning about a running training job's progress; empty if there is none."""


# Show a run's steps in a terminal.

COLOURS = {
    "Succeeded": "green",
    "Failed": "red",
    "Stopped": "yellow",
    "Stopping": "yellow",
    "Executing": "cyan",
}


def build_steps_table(steps: list[Step]) -> Table:
    """Return a table with a row (step, status, time) per step, in the order of ``steps``."""
    table = Table(box=None, pad_edge=False)
    table.add_column("step")
    table.add_column("status")
    table.add_column("time", justify="right")
    for step in steps:
        table.add_row(step.title, format_status(step), format_duration(step.seconds))
    return table


def format_status(step: Step) -> Text:
    """Return the step's status in its colour, with a note if it was cached or reused, or waits for
    a callback.
    """
    return Text(f"{step.status}{_format_status_note(step)}", style=COLOURS.get(step.status, ""))


def _format_status_note(step: Step) -> str:
    """Return a note on a step that was cached or reused, or waits for a callback; else empty."""
    if step.cached:
        return " (cached)"
    if step.reused:
        return " (reused)"
    token = step.metadata.get("Callback", {}).get("CallbackToken")
    waits = token and step.status in ("Executing", "Stopping")
    return f" (waits: trainyard callback {token})" if waits else ""


def format_duration(seconds: float | None) -> str:
    """Return a duration as text: ``4.2 s``, ``3 min 05 s``, ``2 h 10 min``; empty for None."""
    if seconds is None:
        return ""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


# Print the summary when a run has ended.

LAST_LINES = 15
LOG_TAIL = 200
HOSTS_SHOWN = 2
# After a line that matches, a log contains only messages of launchers whose programs have failed.
LAUNCHER = re.compile(r"E\d{4} .*torch/distributed/elastic|Command failed with exit code")


def print_summary(execution: Execution, display: Display) -> None:
    """Print steps and times, the display's tables, failures, the status and the model package."""
    description = execution.describe()
    status = description["PipelineExecutionStatus"]
    steps = execution.list_steps()
    by_name = {step.name: step for step in steps}
    console.print()
    console.print(build_steps_table(steps))
    for table in display.tables:
        if (panel := table(execution, by_name)) is not None:
            console.print(panel)
    for step in steps:
        if step.status == "Failed":
            _print_failure(execution, step)
    reason = f": {note}" if (note := description.get("PipelineExecutionDescription")) else ""
    total = (description["LastModifiedTime"] - description["CreationTime"]).total_seconds()
    console.print(
        Text.assemble(
            "run ", (status, COLOURS.get(status, "")), f" after {format_duration(total)}", reason
        )
    )
    if arn := find_model_package(steps):
        console.print(f"model package {arn}", highlight=False)


def find_model_package(steps: list[Step]) -> str | None:
    """Return the ARN of the model package that the run registered; None if it registered none."""
    for step in steps:
        if arn := step.metadata.get("RegisterModel", {}).get("Arn"):
            return arn
    return None


def _print_failure(execution: Execution, step: Step) -> None:
    """Print a failed step's reason, the last lines of its logs, and its cause if it is known."""
    console.print(Text.assemble((f"{step.name} failed: ", "bold red"), step.reason))
    logs = execution.read_last_lines(step, LOG_TAIL)
    for host in _select_hosts(logs, step.reason):
        console.print(Text(f"last lines of {host}:", style="dim"))
        for line in select_last_job_lines(logs[host]):
            console.print(Text(f"  {line}", style="dim"))
    cause = find_cause(execution, step)
    # These two have been printed already: "reason" is the step's reason, and all that is known of
    # "unknown" is the end of the log.
    if cause.name not in ("reason", "unknown"):
        print_cause(cause)


def _select_hosts(hosts: Iterable[str], reason: str) -> list[str]:
    """Return the hosts that the reason names; else the first few, because ranks fail alike."""
    hosts = sorted(hosts)
    named_hosts = [host for host in hosts if re.search(rf"\b{re.escape(host)}\b", reason)]
    return named_hosts or hosts[:HOSTS_SHOWN]


def select_last_job_lines(lines: Sequence[str]) -> Sequence[str]:
    """Return the last lines that the job itself logged, before the messages of its launcher."""
    end = next((n for n, line in enumerate(lines) if LAUNCHER.match(line)), len(lines))
    return lines[max(0, end - LAST_LINES) : end]


# A cause of a failure.

STYLES = {"certain": "bold red", "likely": "bold yellow", "unknown": "bold"}


def print_cause(cause: Cause) -> None:
    """Print a cause: its sentence, then the lines that show it, then the fix."""
    mark = {"certain": "", "likely": "likely: ", "unknown": ""}[cause.certainty]
    prefix = f"{cause.step} failed: " if cause.step else ""
    if cause.source and (cause.host or cause.rank is not None):
        prefix += f"{_name_process(cause)}: "
    console.print(Text.assemble((f"{prefix}{mark}", STYLES[cause.certainty]), cause.sentence))
    if cause.lines:
        heading = _name_process(cause) or ("because" if cause.name == "condition" else "it says")
        console.print(Text(f"  {heading}:", style="dim"))
    for line in cause.lines:
        # A terminal would take control characters of a log for commands.
        safe_line = "".join(c if c.isprintable() or c == "\t" else repr(c)[1:-1] for c in line)
        console.print(Text(f"    {safe_line}", style="dim"))
    if cause.fix:
        console.print(Text.assemble(("  fix: ", "bold"), cause.fix))
    if cause.source:
        console.print(Text(f"  known from: {cause.source}", style="dim"))


def _name_process(cause: Cause) -> str:
    """Return rank and host, such as ``rank 3 on algo-1``, as far as the cause names them."""
    rank = "" if cause.rank is None else f"rank {cause.rank}"
    return " on ".join(filter(None, (rank, cause.host)))
