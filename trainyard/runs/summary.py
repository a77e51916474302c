"""What a person wants to read when a run has ended."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from trainyard.runs.execution import Execution, Step
from trainyard.runs.table import COLOURS, duration, steps_table
from trainyard.terminal import console

LAST_LINES = 15
LOG_TAIL = 200
HOSTS_SHOWN = 2
# From here on a log holds only launchers reporting that what they launched has failed.
LAUNCHER = re.compile(r"E\d{4} .*torch/distributed/elastic|Command failed with exit code")

COMPARED = ("non_inferiority", "superiority", "slice_regression", "power", "sample_size",
            "influence")  # fmt: skip
"""Kinds of checks that need a champion, or its scores: while there is none, the recipe decides."""


def print_summary(execution: Execution) -> None:
    """Steps and times, the metrics against the gate, the model package; or why it failed."""
    described = execution.describe()
    status = described["PipelineExecutionStatus"]
    steps = execution.steps()
    by_name = {step.name: step for step in steps}
    console.print()
    console.print(steps_table(steps))
    if gate := _gate(execution, by_name):
        console.print(_checks_table(gate))
    for step in steps:
        if step.status == "Failed":
            _print_failure(execution, step)
    why = f": {said}" if (said := described.get("PipelineExecutionDescription")) else ""
    total = (described["LastModifiedTime"] - described["CreationTime"]).total_seconds()
    console.print(
        Text.assemble("run ", (status, COLOURS.get(status, "")), f" after {duration(total)}", why)
    )
    if arn := model_package(steps):
        console.print(f"model package {arn}", highlight=False)
        if registered_again(steps):
            console.print(
                "the model of an earlier run, registered again: every job was answered from the "
                "cache, which AWS has for jobs, not for registrations",
                highlight=False,
            )


def model_package(steps: list[Step]) -> str | None:
    """ARN of the model package that the run registered; None when it registered none."""
    for step in steps:
        if arn := step.metadata.get("RegisterModel", {}).get("Arn"):
            return arn
    return None


def registered_again(steps: Sequence[Step]) -> bool:
    """Whether the run registered what an earlier one had made."""
    jobs = [step for step in steps if step.job]
    return bool(jobs) and all(step.cached for step in jobs) and bool(model_package(list(steps)))


def _gate(execution: Execution, steps: dict[str, Step]) -> dict[str, Any] | None:
    step = steps.get("Gate")
    if step is None or step.status != "Succeeded":
        return None
    return execution.output_json(step, "gate", "gate.json")


def _checks_table(gate: dict[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("gate")
    table.add_column("value", justify="right")
    if limits := any(_limits(check) for check in gate["checks"]):
        table.add_column("limits", justify="right")
    table.add_column("demanded", justify="right")
    table.add_column("")
    for check in gate["checks"]:
        verdict = ("pass", "green") if check["passed"] else ("reject", "red")
        table.add_row(
            check["name"],
            measured(check, gate),
            *([_limits(check)] if limits else []),
            demanded(check),
            Text(*verdict),
        )
    return table


def measured(check: dict[str, Any], gate: dict[str, Any]) -> str:
    """The value of a check, or why it has none."""
    if check["value"] is None and check.get("kind") in COMPARED and gate.get("champion") == "none":
        return f"no champion, cold_start: {gate.get('cold_start')}"
    return _number(check["value"])


def demanded(check: dict[str, Any]) -> str:
    """What a check demands of its value, or of one of its limits."""
    bounds = {"non_inferiority": "low above", "superiority": "low above"} | {
        "slice_regression": "high above", "calibration": "high at most"}  # fmt: skip
    usual = "at most" if check["direction"] == "lower" else "at least"
    return f"{bounds.get(check.get('kind'), usual)} {_number(check['threshold'])}"


def _limits(check: dict[str, Any]) -> str:
    """``low to high``; empty where a check has none."""
    low, high = check.get("low"), check.get("high")
    if low is None and high is None:
        return ""
    if check.get("kind") == "calibration":  # which has no lower limit
        return f"at most {_number(high)}"
    return f"{'-∞' if low is None else _number(low)} to {'∞' if high is None else _number(high)}"


def _number(value: float | None) -> str:
    return "missing" if value is None else f"{value:.4f}"


def _print_failure(execution: Execution, step: Step) -> None:
    console.print(Text.assemble((f"{step.name} failed: ", "bold red"), step.reason))
    logs = execution.last_lines(step, LOG_TAIL)
    for host in _worth_showing(logs, step.reason):
        console.print(Text(f"last lines of {host}:", style="dim"))
        for line in last_words(logs[host]):
            console.print(Text(f"  {line}", style="dim"))


def _worth_showing(hosts: Iterable[str], reason: str) -> list[str]:
    """The hosts that the reason names; else the first few: the ranks of a job fail alike."""
    hosts = sorted(hosts)
    named = [host for host in hosts if re.search(rf"\b{re.escape(host)}\b", reason)]
    return named or hosts[:HOSTS_SHOWN]


def last_words(lines: Sequence[str]) -> Sequence[str]:
    """The last lines of a log that the job itself wrote, before its launchers fell over it."""
    end = next((n for n, line in enumerate(lines) if LAUNCHER.match(line)), len(lines))
    return lines[max(0, end - LAST_LINES) : end]
