"""Display of a run's steps in a terminal."""

from rich.table import Table
from rich.text import Text

from trainyard.runs.execution import Step

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
