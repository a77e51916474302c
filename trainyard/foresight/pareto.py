"""The picture of what time costs: every layout that fits, and those that nothing beats."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from trainyard.common.plot_style import STYLE
from trainyard.foresight.advice import Advice, Candidate
from trainyard.foresight.reasons import dollars
from trainyard.foresight.rules import count

DAY = 24.0
COLOURS = ("#2563eb", "#d97706", "#16a34a", "#9333ea", "#dc2626", "#0891b2", "#64748b")


def draw(advice: Advice, place: Path) -> None:
    """Write the picture, in the format of the file's suffix (png, svg, pdf)."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8, 5), layout="constrained")
        axes = figure.add_subplot()
        names = [offer.name for offer in advice.question.offers]
        colours = dict(zip(names, COLOURS * len(names), strict=False))
        _cloud(axes, advice, colours)
        _edge(axes, advice.frontier, colours)
        _bounds(axes, advice)
        axes.set(xscale="log", yscale="log", xlabel="days", ylabel="USD")
        _plain(axes)
        axes.legend(
            handles=_legend(advice, colours), loc="upper right", framealpha=0.9, edgecolor="none"
        )
        axes.set_title(_title(advice), loc="left", fontsize=11)
        figure.savefig(place, dpi=150, metadata=_undated(place))


def _title(advice: Advice) -> str:
    question = advice.question
    return f"{count(question.parameters)} parameters on {count(question.tokens)} tokens"


def _undated(place: Path) -> dict[str, Any] | None:
    return {"Date": None} if place.suffix == ".svg" else None


def _cloud(axes: Any, advice: Advice, colours: dict[str, str]) -> None:
    for name, colour in colours.items():
        these = [one for one in advice.ranked if one.offer.name == name]
        days = [one.hours.p50 / DAY for one in these]
        axes.scatter(days, [one.usd.p50 for one in these], s=4, color=colour, alpha=0.15, lw=0)


def _edge(axes: Any, points: Sequence[Candidate], colours: dict[str, str]) -> None:
    """The frontier, with the deciles of each point in both directions."""
    axes.plot(
        [one.hours.p50 / DAY for one in points],
        [one.usd.p50 for one in points],
        color="#0f172a",
        lw=1,
        zorder=3,
    )
    for one in points:
        days, usd = one.hours.times(1 / DAY), one.usd
        axes.errorbar(
            days.p50,
            usd.p50,
            xerr=[[days.p50 - days.p10], [days.p90 - days.p50]],
            yerr=[[usd.p50 - usd.p10], [usd.p90 - usd.p50]],
            fmt="o",
            ms=5,
            lw=1,
            color=colours[one.offer.name],
            zorder=4,
        )
        axes.annotate(
            str(one.nodes),
            (days.p50, usd.p50),
            xytext=(4, 5),
            textcoords="offset points",
            zorder=5,
        )


def _bounds(axes: Any, advice: Advice) -> None:
    question = advice.question
    if question.deadline is not None:
        axes.axvline(question.deadline / DAY, color="#dc2626", lw=1, ls="--")
    if question.budget is not None:
        axes.axhline(question.budget, color="#dc2626", lw=1, ls="--")


def _plain(axes: Any) -> None:
    """Numbers as people read them on both logarithmic axes."""
    for axis, words in ((axes.xaxis, lambda value, _: f"{value:g}"), (axes.yaxis, None)):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_minor_formatter(NullFormatter())
        axis.set_major_formatter(FuncFormatter(words or (lambda value, _: dollars(value))))


def _legend(advice: Advice, colours: dict[str, str]) -> list[Line2D]:
    dots = [
        Line2D([], [], marker="o", ls="", color=colour, label=name)
        for name, colour in colours.items()
    ]
    edge = Line2D([], [], color="#0f172a", label="nothing beats (count of instances; p10–p90)")
    question = advice.question
    bounded = question.deadline is not None or question.budget is not None
    asked = Line2D([], [], color="#dc2626", ls="--", label="asked for")
    return [*dots, edge, *([asked] if bounded else [])]
