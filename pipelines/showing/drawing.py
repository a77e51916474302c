"""How a picture of a run's page is drawn: as SVG text.

Each picture is a function from data to SVG; None where there is no data.
"""

from collections.abc import Callable
from io import StringIO
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

MODEL, OTHER, GOOD, BAD = "#2563eb", "#94a3b8", "#16a34a", "#dc2626"
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
