"""A picture of what was foreseen against what was measured."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.foresight.fitting import Case, Floats


def draw(of: Sequence[Case], off: Floats, path: Path) -> None:
    """Errors of rows that were held out, by source, over the step's measured seconds."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.subplots()
    sources = np.array([case.source for case in of])
    measured = np.array([case.measured for case in of])
    for source in dict.fromkeys(sources.tolist()):
        here = sources == source
        axes.semilogx(measured[here], off[here], "o", markersize=4, alpha=0.7, label=source)
    axes.axhspan(-0.1, 0.1, color="0.9", zorder=0)
    axes.set_xlabel("measured seconds a step")
    axes.set_ylabel("foreseen ÷ measured − 1, model size held out")
    axes.legend(fontsize="small", ncols=2)
    figure.savefig(path)
