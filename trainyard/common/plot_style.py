"""How every picture looks that matplotlib draws: for ``matplotlib.rc_context``."""

from typing import Any

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
