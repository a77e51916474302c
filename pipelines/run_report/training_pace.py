"""Compare the pace (time per step) of a training job with earlier jobs and its forecast."""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from rich.table import Table
from rich.text import Text

from conditions.check_table import GateCheck, load_checks
from conditions.gate_documents import Gate
from conditions.no_champion import NONE
from pipelines.advice.training_setting import LoopTraining, derive_described_training
from steps.evaluate.evaluation_document import Evaluation
from training.layout import Layout
from trainyard.common.errors import ForesightError
from trainyard.foresight import measured_corrections
from trainyard.runs.execution import Execution
from trainyard.runs.metric_lines import compile_definitions, parse_line_metrics
from trainyard.runs.run_display import (
    Display,
    Steps,
    build_metrics_table,
    read_latest_metrics,
    read_training_metrics,
)
from trainyard.runs.training_speed import STEP, ExpectedTime, Pace, Seconds, estimate_expected_time
from trainyard.validate.rules.job_view import PROCESSES

PARTS = ("data", "forward_backward", "communication", "optimizer", "checkpoint")
LOOK_BACK = 5
"""Number of earlier executions that are searched for similar training jobs."""

SPEED = {
    *Layout.model_fields,
    *("global_batch", "micro_batch", "precision", "optimizer", "deterministic"),
    *("workload", "workload_config", "tuning"),
}
"""Hyperparameters that affect the time of a step."""

EXCHANGED_APART = ("ddp", "smddp")
"""Strategies whose metric lines report the gradient exchange separately
(``training.watching.clock``).
"""


class Paces:
    """Paces of training jobs; the expected times of a job are computed only once."""

    def __init__(self) -> None:
        self._expectations: dict[str, tuple[ExpectedTime, ...]] = {}

    def find_pace(self, execution: Execution, job: Mapping[str, Any]) -> Pace | None:
        """Return the job's pace; None if it does not run our loop, or has no metric yet."""
        step_seconds = read_step_seconds(job)
        if step_seconds is None:
            return None
        name = job["TrainingJobName"]
        if name not in self._expectations:
            self._expectations[name] = tuple(_expect_pace(execution, job))
        return Pace(found=step_seconds, expected=self._expectations[name])

    def build_table(self, execution: Execution, steps: Steps) -> Table | None:
        """Return a table with the time of a step and its parts, and the expected times; None if
        nothing is expected.
        """
        pace = self.read(execution, steps)
        return pace.build_table() if pace else None

    def read(self, execution: Execution, steps: Steps) -> Pace | None:
        """Return the pace of an execution's training; None if it has no expected times."""
        if "Train" not in steps or (job := steps["Train"].job) is None:
            return None
        if job[0] != "TrainingJob":
            return None
        pace = self.find_pace(execution, execution.training_job(job[1]))
        return pace if pace and pace.expected else None

    def remark_on_job(self, execution: Execution, job: Mapping[str, Any]) -> str:
        """Return a remark if the job is slow; empty if it is not."""
        # The first metric line includes the time in which kernels are chosen and compiled.
        interval = job.get("HyperParameters", {}).get("log_interval", "")
        if interval.isdecimal() and read_latest_metrics(job).get("train:step", 0) <= int(interval):
            return ""
        pace = self.find_pace(execution, job)
        return pace.describe_slowness() if pace else ""


def read_pace(execution: Execution, steps: Steps) -> Pace | None:
    """Return the pace of the execution's training, for the report; None if there is none."""
    return Paces().read(execution, steps)


def read_step_seconds(job: Mapping[str, Any]) -> Seconds | None:
    """Return the seconds of a step and its parts in the job's latest metrics, or None."""
    metrics = read_latest_metrics(job)
    if not is_ours(metrics) or "train:step_seconds" not in metrics:
        return None
    parts = {part: metrics.get(f"train:{part}_seconds") for part in (STEP, *PARTS)}
    return {part: value for part, value in parts.items() if value is not None}


def _expect_pace(execution: Execution, job: Mapping[str, Any]) -> Iterator[ExpectedTime]:
    """Yield the expected times: first those of earlier training jobs, then the forecast."""
    if (earlier_time := estimate_expected_time(list(_find_similar(execution, job)))) is not None:
        yield earlier_time
    try:
        yield forecast_step_time(derive_described_training(job))
    except ForesightError:  # no forecast
        return


def _find_similar(execution: Execution, job: Mapping[str, Any]) -> Iterator[Seconds]:
    """Yield the times of earlier training jobs with the same work on the same machines."""
    names = {job["TrainingJobName"]}
    for earlier_run in execution.earlier(LOOK_BACK):
        for step in earlier_run.steps():
            if step.status != "Succeeded" or not step.job or step.job[0] != "TrainingJob":
                continue
            if step.job[1] not in names:  # a cached step has the job of an earlier execution
                names.add(step.job[1])
                earlier_job = earlier_run.training_job(step.job[1])
                if (
                    _list_speed_factors(earlier_job) == _list_speed_factors(job)
                    and (times := read_step_seconds(earlier_job)) is not None
                ):
                    yield times


def _list_speed_factors(job: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return everything that affects a job's time per step: settings, machines, processes."""
    settings, resources = job.get("HyperParameters", {}), job["ResourceConfig"]
    work = {name: settings[name] for name in sorted(SPEED & settings.keys())}
    machines = (resources.get("InstanceType"), resources.get("InstanceCount"))
    return work, machines, job.get("Environment", {}).get(PROCESSES)


def forecast_step_time(training: LoopTraining) -> ExpectedTime:
    """Return the forecast of the parts of a step that metric lines report."""
    time = measured_corrections.read().time(training.setting, training.shapes)
    step, exchange = time.step_seconds, 0.0
    if training.loop.strategy in EXCHANGED_APART:
        exchange = time.parts["data parallel"]
    optimizer = time.parts["optimizer"]
    parts = {
        STEP: step.p50,
        "data": 0.0,
        "forward_backward": sum(time.parts.values()) - optimizer - exchange,
        "communication": exchange,
        "optimizer": optimizer,
    }
    return ExpectedTime(seconds=parts, most=step.p90, grounds="is foreseen")


# Show our executions in a terminal: the gate's checks, and the progress of the training.


def build_gate_table(execution: Execution, steps: Steps) -> Table | None:
    """Return a table of the gate's checks; None if there is no verdict yet."""
    if "Gate" not in steps or steps["Gate"].status != "Succeeded":
        return None
    gate = read_gate(execution, steps)
    return build_checks_table(gate) if gate else None


def build_checks_table(gate: Gate) -> Table:
    """Return a table with one row for each check in gate.json."""
    table = Table(box=None, pad_edge=False)
    table.add_column("gate")
    table.add_column("value", justify="right")
    if has_limits := any(format_limits(check) for check in gate["checks"]):
        table.add_column("limits", justify="right")
    table.add_column("demanded", justify="right")
    table.add_column("")
    for check in gate["checks"]:
        verdict = ("pass", "green") if check["passed"] else ("reject", "red")
        table.add_row(
            check["name"],
            format_value(check, gate),
            *([format_limits(check)] if has_limits else []),
            format_demand(check),
            Text(*verdict),
        )
    return table


def build_script_table(execution: Execution, steps: Steps) -> Table | None:
    """Return a table of the latest metrics of a user's own script; None for our loop."""
    metrics = read_training_metrics(execution, steps)
    return None if any(map(is_ours, metrics.values())) else build_metrics_table(execution, steps)


def read_progress(job: Mapping[str, Any]) -> tuple[float, float] | None:
    """Return (steps done, all steps) of our training job; None before its first metric."""
    step_count = read_latest_metrics(job).get("train:step")
    total = job.get("HyperParameters", {}).get("max_steps", "")
    return (step_count, int(total)) if step_count is not None and total.isdigit() else None


PACES = Paces()
DISPLAY = Display(
    watch="python -m pipelines.watch",
    tables=(build_script_table, PACES.build_table, build_gate_table),
    progress=read_progress,
    warns=PACES.remark_on_job,
)


# Read the documents that our steps write: evaluation.json, gate.json, metric lines.

PAIR = re.compile(r"(\w+)=([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)")


def read_gate(execution: Execution, steps: Steps) -> Gate | None:
    """Return gate.json; None if the execution has none."""
    if "Gate" not in steps:
        return None
    document: Any = execution.read_output_json(steps["Gate"], "gate", "gate.json")
    return document


def read_evaluation(execution: Execution, steps: Steps) -> Evaluation | None:
    """Return evaluation.json; None if the execution has none."""
    if "Evaluate" not in steps:
        return None
    document: Any = execution.read_output_json(steps["Evaluate"], "evaluation", "evaluation.json")
    return document


def read_training(execution: Execution, steps: Steps) -> list[dict[str, float]]:
    """Return the metric lines of the training job, as ``parse_history`` does."""
    return parse_history(execution.all_lines(steps["Train"])) if "Train" in steps else []


def read_metrics(execution: Execution, steps: Steps) -> dict[str, list[float]]:
    """Return the values of each metric of a user's own script, by name, in the order of the log;
    empty for our loop.
    """
    job = steps["Train"].job if "Train" in steps else None
    if job is None:
        return {}
    metric_definitions = compile_definitions(execution.training_job(job[1]))
    if is_ours(definition.name for definition in metric_definitions):
        return {}
    values: dict[str, list[float]] = {definition.name: [] for definition in metric_definitions}
    for line in execution.all_lines(steps["Train"]):
        if sample := parse_line_metrics(metric_definitions, line):
            for name, value in sample.values.items():
                values[name].append(value)
    return {name: samples for name, samples in values.items() if samples}


def is_ours(metrics: Iterable[str]) -> bool:
    """Return whether a training job with these metrics runs Trainyard's loop."""
    return "train:step" in metrics


def parse_history(lines: Iterable[str]) -> list[dict[str, float]]:
    """Return the metric lines in a training job's log, ordered by step: lines that start with
    ``step=``.

    Each maps metric names to values.
    """
    lines_by_step: dict[tuple[float, frozenset[str]], dict[str, float]] = {}
    for line in lines:
        if line.startswith("step="):
            metrics = {name: float(value) for name, value in PAIR.findall(line)}
            # A resumed job logs some steps twice: the last line counts.
            lines_by_step[metrics["step"], frozenset(metrics)] = metrics
    return sorted(lines_by_step.values(), key=lambda metrics: metrics["step"])


Row = Mapping[str, Any]
"""One check in gate.json."""


@cache
def find_check(kind: str | None) -> GateCheck | None:
    """Return the first entry of this kind in the table of checks; None if there is none."""
    return next((check for check in load_checks() if check.kind == kind), None)


def format_value(row: Row, gate: Mapping[str, Any]) -> str:
    """Return the value of a check, or why it has none."""
    champion_kinds = [check.kind for check in load_checks() if "champion" in check.needs]
    is_compared = row.get("kind") in champion_kinds
    if row["value"] is None and is_compared and gate.get("champion") == NONE:
        return f"no champion, cold_start: {gate.get('cold_start')}"
    return _format_number(row["value"])


def format_demand(row: Row) -> str:
    """Return the check's requirement of its value, or of one of its limits, as text."""
    default_limit = "at most" if row["direction"] == "lower" else "at least"
    return f"{_limit(row) or default_limit} {_format_number(row['threshold'])}"


def format_limits(row: Row) -> str:
    """Return ``low to high``; empty if the check has no limits."""
    low, high = row.get("low"), row.get("high")
    if low is None and high is None:
        return ""
    if _limit(row) == "high at most":  # such a check has no lower limit
        return f"at most {_format_number(high)}"
    return (
        f"{'-∞' if low is None else _format_number(low)} to "
        f"{'∞' if high is None else _format_number(high)}"
    )


def _limit(row: Row) -> str | None:
    """Return the limit that the check compares, such as ``high at most``; None for the value."""
    check_entry = find_check(row.get("kind"))
    return check_entry.limit if check_entry else None


def _format_number(value: float | None) -> str:
    return "missing" if value is None else f"{value:.4f}"
