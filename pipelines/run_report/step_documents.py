"""Read the documents that our steps write: evaluation.json, gate.json, metric lines."""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from conditions.check_table import GateCheck, load_checks
from conditions.gate_documents import Gate
from conditions.no_champion import NONE
from steps.evaluate.evaluation_document import Evaluation
from trainyard.runs.execution import Execution
from trainyard.runs.metric_lines import compile_definitions, parse_line_metrics
from trainyard.runs.run_display import Steps

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
    return parse_history(execution.iter_lines(steps["Train"])) if "Train" in steps else []


def read_metrics(execution: Execution, steps: Steps) -> dict[str, list[float]]:
    """Return the values of each metric of a user's own script, by name, in the order of the log;
    empty for our loop.
    """
    job = steps["Train"].job if "Train" in steps else None
    if job is None:
        return {}
    metric_definitions = compile_definitions(execution.describe_training_job(job[1]))
    if is_loop_training(definition.name for definition in metric_definitions):
        return {}
    values: dict[str, list[float]] = {definition.name: [] for definition in metric_definitions}
    for line in execution.iter_lines(steps["Train"]):
        if sample := parse_line_metrics(metric_definitions, line):
            for name, value in sample.values.items():
                values[name].append(value)
    return {name: samples for name, samples in values.items() if samples}


def is_loop_training(metrics: Iterable[str]) -> bool:
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
    """Return what the check requires of its value or limit, as text, such as ``at most 0.5000``."""
    default_limit = "at most" if row["direction"] == "lower" else "at least"
    return f"{_describe_limit(row) or default_limit} {_format_number(row['threshold'])}"


def format_limits(row: Row) -> str:
    """Return ``low to high``; empty if the check has no limits."""
    low, high = row.get("low"), row.get("high")
    if low is None and high is None:
        return ""
    if _describe_limit(row) == "high at most":  # such a check has no lower limit
        return f"at most {_format_number(high)}"
    return (
        f"{'-∞' if low is None else _format_number(low)} to "
        f"{'∞' if high is None else _format_number(high)}"
    )


def _describe_limit(row: Row) -> str | None:
    """Return the limit that the check compares, such as ``high at most``; None for the value."""
    check_entry = find_check(row.get("kind"))
    return check_entry.limit if check_entry else None


def _format_number(value: float | None) -> str:
    return "missing" if value is None else f"{value:.4f}"
