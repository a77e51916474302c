"""How a picture of a run's page is drawn: as SVG text.

Each picture is a function from data to SVG; None where there is no data.
"""

from collections.abc import Callable
from io import StringIO

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from trainyard.common.plot_style import STYLE

MODEL, OTHER, GOOD, BAD = "#2563eb", "#94a3b8", "#16a34a", "#dc2626"


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
