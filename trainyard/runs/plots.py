"""The timeline of any run, and how a picture of a page is drawn: as SVG text.

Each picture is a function from data to SVG; None where there is no data.
"""

from collections.abc import Callable, Sequence
from io import StringIO
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from trainyard.runs.execution import Step

MODEL, OTHER, GOOD, BAD = "#2563eb", "#94a3b8", "#16a34a", "#dc2626"
STATUS = {"Succeeded": GOOD, "Failed": BAD, "Stopped": "#d97706"}
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: small, sharp, searchable
    "svg.hashsalt": "trainyard",  # else ids are random and the page never the same twice
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#64748b",
    "axes.grid": True,
    "grid.color": "#e2e8f0",
    "axes.axisbelow": True,
}


def timeline(steps: Sequence[Step]) -> str | None:
    """When each step ran, in seconds since the first began."""
    ran = [(step, step.started, step.seconds or 0.0) for step in steps if step.started]
    if not ran:
        return None
    begin = min(started for _, started, _ in ran)

    def draw(axes: Axes) -> None:
        starts = [(started - begin).total_seconds() for _, started, _ in ran]
        visible = max(s + seconds for s, (*_, seconds) in zip(starts, ran, strict=True)) / 200
        for row, (start, (step, _, seconds)) in enumerate(zip(starts, ran, strict=True)):
            colour = STATUS.get(step.status, OTHER)
            axes.barh(row, max(seconds, visible), left=start, color=colour)
        axes.set_yticks(range(len(ran)), [step.name for step, _, _ in ran])
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        axes.set(xlabel="seconds since the start")

    return picture(draw, (7, 0.7 + 0.32 * len(ran)))


def picture(draw: Callable[[Axes], None], size: tuple[float, float]) -> str:
    """SVG of a figure of ``size`` inches with one plot."""
    return picture_of(lambda figure: draw(figure.add_subplot()), size)


def picture_of(draw: Callable[[Figure], None], size: tuple[float, float]) -> str:
    """SVG of a figure of ``size`` inches, without the XML prologue, which HTML has no place for."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure)
        text = StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    svg = text.getvalue()
    return svg[svg.index("<svg") :]
