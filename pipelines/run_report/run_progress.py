"""Show our executions in a terminal: the gate's checks, and the progress of the training."""

from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from conditions.gate_documents import Gate
from pipelines.run_report.step_documents import (
    format_demand,
    format_limits,
    format_value,
    is_loop_training,
    read_gate,
)
from pipelines.run_report.training_pace import Paces
from trainyard.runs.execution import Execution
from trainyard.runs.run_display import (
    Display,
    Steps,
    build_metrics_table,
    read_latest_metrics,
    read_training_metrics,
)

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
    return (
        None
        if any(map(is_loop_training, metrics.values()))
        else build_metrics_table(execution, steps)
    )


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
