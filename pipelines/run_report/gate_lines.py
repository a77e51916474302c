"""Show our runs in a terminal: the gate's checks, and the progress of the training."""

from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from conditions.gate_documents import Gate
from pipelines.run_report.run_documents import (
    against,
    format_demand,
    format_value,
    is_ours,
    limits,
    read_gate,
)
from pipelines.run_report.training_pace import Paces
from trainyard.runs.execution import Execution
from trainyard.runs.run_display import Display, Steps, latest, metrics_table, training_metrics


def gate_table(execution: Execution, steps: Steps) -> Table | None:
    """Return the checks of the run's verdict; None before there is one."""
    if "Gate" not in steps or steps["Gate"].status != "Succeeded":
        return None
    gate = read_gate(execution, steps)
    return checks_table(gate) if gate else None


def checks_table(gate: Gate) -> Table:
    """Return a table with a row for each check in gate.json."""
    table = Table(box=None, pad_edge=False)
    table.add_column("gate")
    table.add_column("value", justify="right")
    if some := any(limits(check) for check in gate["checks"]):
        table.add_column("limits", justify="right")
    table.add_column("demanded", justify="right")
    table.add_column("")
    for check in gate["checks"]:
        verdict = ("pass", "green") if check["passed"] else ("reject", "red")
        table.add_row(
            check["name"],
            format_value(check, gate),
            *([limits(check)] if some else []),
            format_demand(check),
            Text(*verdict),
        )
    return table


def baselines_table(execution: Execution, steps: Steps) -> Table | None:
    """Return a table on whether the model beats each baseline on the same rows; None without the
    data.
    """
    if "Gate" not in steps or steps["Gate"].status != "Succeeded":
        return None
    gate = read_gate(execution, steps)
    return against_table(gate) if gate and gate.get("against_baselines") else None


def int8_table(execution: Execution, steps: Steps) -> Table | None:
    """Return what the gate says of the model's int8 version; None where none was asked for."""
    if "Gate" not in steps or steps["Gate"].status != "Succeeded":
        return None
    gate = read_gate(execution, steps)
    if not gate or "int8" not in gate:
        return None
    table = Table(box=None, pad_edge=False)
    table.add_column("int8, beside the full model")
    for part in gate["int8"]["says"].split("; "):
        table.add_row(Text(part))
    return table


def against_table(gate: Gate) -> Table:
    """Return a table with a row for each baseline and metric in gate.json that has limits."""
    table = Table(box=None, pad_edge=False)
    table.add_column("beats, on the same rows")
    for name in ("metric", "model", "baseline", "better by", "limits"):
        table.add_column(name, justify="left" if name == "metric" else "right")
    table.add_column("")
    for row in gate["against_baselines"]:
        numbers = (f"{row[name]:.4f}" for name in ("model", "other"))
        improvement = (f"{row['value']:+.4f}", limits(row))
        table.add_row(row["baseline"], row["metric"], *numbers, *improvement, against(row))
    return table


def script_table(execution: Execution, steps: Steps) -> Table | None:
    """Return a table of the latest metrics of a user's own script; None for our loop."""
    metrics = training_metrics(execution, steps)
    return None if any(map(is_ours, metrics.values())) else metrics_table(execution, steps)


def steps_done(job: Mapping[str, Any]) -> tuple[float, float] | None:
    """Return (optimizer steps done, all steps) of our training job; None before its
    first metric.
    """
    step_count, total = (
        latest(job).get("train:step"),
        job.get("HyperParameters", {}).get("max_steps", ""),
    )
    return (step_count, int(total)) if step_count is not None and total.isdigit() else None


PACES = Paces()
DISPLAY = Display(
    watch="python -m pipelines.watch",
    tables=(script_table, PACES.table, gate_table, int8_table, baselines_table),
    progress=steps_done,
    warns=PACES.remark_on_job,
)
