"""Charts: figures that the browser draws, with their words for everybody else, and their points."""

import importlib.util
import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from flask import Blueprint, Response, jsonify, render_template, request, send_from_directory
from markupsafe import Markup
from werkzeug.exceptions import BadRequest

from trainyard.console.account_cache import Account, account, ask_again
from trainyard.console.metric_curves import Metrics, Samples, read
from trainyard.console.template_filters import figure as number
from trainyard.runs.metric_lines import STEPS
from trainyard.runs.step_table import duration

page = Blueprint("charts", __name__)

LIBRARY = {"uplot.js": "uplot.iife.min.js", "uplot.css": "uplot.min.css"}
"""Name in addresses → file of uPlot 1.6.31, which the package youplot ships unchanged."""

FARTHEST = 1e150
"""Values farther from zero than this are drawn as infinite: their differences overflow."""

DESCRIBED = 10  # most lines of a chart that are described in words
_PHASE = re.compile(
    r"^(train|training|validation|valid|val|eval|test)[:_\-./ ]+(?=.)", re.IGNORECASE
)


@page.get("/library/<name>")
def library(name: str) -> Response:
    """Return a file of the charting library, from its package's folder; none of its code runs."""
    found = importlib.util.find_spec("youplot")
    assert found is not None and found.submodule_search_locations  # a dependency of this package
    folder = Path(found.submodule_search_locations[0]) / "vendor"
    return send_from_directory(folder, LIBRARY.get(name, "none"))


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a chart whose points are known; ``marks``: points without a line between them."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    marks: bool = False


@dataclass(frozen=True, slots=True)
class Curve:
    """A metric of a training job, or of one of its ranks."""

    label: str
    job: str
    name: str
    metrics: Metrics = field(compare=False)
    rank: int | None = None

    @property
    def samples(self) -> Samples:
        """Its values."""
        if self.rank is None:
            return self.metrics.samples.get(self.name, Samples())
        return self.metrics.by_rank.get(self.name, {}).get(self.rank, Samples())

    def words(self) -> str:
        """Describe its last, lowest and highest value."""
        some = self.samples
        return _words(self.label, some.values, some.lowest, some.highest, self.where)

    def where(self, place: int | None) -> str:
        """Return the position of a value: its step, or the time since the job's first value."""
        if place is None:
            return ""
        step = self.samples.steps[place]
        if self.metrics.counter and not math.isnan(step):
            return f"at {self.metrics.counter} {step:g}"
        return f"after {duration((self.samples.at[place] - self.metrics.begin) / 1000)}"


def chart(key: str, title: str, lines: Sequence[Line], *, x: str) -> Markup:
    """Return a figure of known points. ``key``: its id on the page; ``x``: the axis across."""
    words = []
    for one in lines[:DESCRIBED]:
        if len(one.x) == 1:
            words.append(f"{one.label}: {number(float(one.y[0]))} at {x} {number(float(one.x[0]))}")
            continue
        places = [place for place, value in enumerate(one.y) if math.isfinite(value)]
        low = min(places, key=one.y.__getitem__, default=None)
        high = max(places, key=one.y.__getitem__, default=None)
        at = [f"at {x} {number(float(value))}" for value in one.x]
        words.append(_words(one.label, one.y, low, high, lambda i, at=at: at[i]))  # type: ignore[misc]
    shown = [
        {"label": one.label, "x": list(one.x), "y": _sent(one.y), "marks": one.marks}
        for one in lines
    ]
    return _figure(key, title, {"x": x, "lines": shown}, words)


def curve_chart(key: str, title: str, curves: Sequence[Curve]) -> Markup:
    """Return a figure of training metrics, whose points the browser asks for."""
    if any(one.metrics.until is not None for one in curves):
        ask_again()
    asked = {
        "job": [one.job for one in curves],
        "name": [one.name for one in curves],
        "rank": ["" if one.rank is None else one.rank for one in curves],
    }
    lines = [{"label": one.label} for one in curves]
    words = [one.words() for one in curves[:DESCRIBED]]
    count = sum(one.samples.count for one in curves)
    source = f"/curves?{urlencode(asked, doseq=True)}"
    return _figure(key, title, {"source": source, "lines": lines}, words, count)


def _figure(
    key: str, title: str, asked: dict[str, Any], words: Sequence[str], count: int = 0
) -> Markup:
    more = len(asked["lines"]) - len(words)
    html = render_template(
        "chart.html.j2",
        **{"key": key, "title": title, "count": count, "chart": json.dumps(asked)},
        **{"words": [*words, *([f"And {more} more."] if more else [])]},
    )
    return Markup(html)  # made by a template, which has escaped it


def _words(
    label: str,
    values: Sequence[float],
    low: int | None,
    high: int | None,
    where: Callable[[int], str],
) -> str:
    if not len(values):
        return f"{label}: no value yet"
    last = f"{label}: last {number(float(values[-1]))}"
    if low is None or high is None:
        return last
    lowest = f"lowest {number(float(values[low]))} {where(low)}"
    return f"{last}, {lowest}, highest {number(float(values[high]))} {where(high)}"


def _sent(values: Iterable[float]) -> list[float | str]:
    """Return values as JSON can have them: NaN and infinity as text."""
    return [
        value
        if abs(value) <= FARTHEST
        else "nan"
        if math.isnan(value)
        else "-inf" * (value < 0) or "inf"
        for value in values
    ]


@page.get("/curves")
def points() -> Response:
    """Return the points of the curves ``job``, ``name``, ``rank`` that are new ``after`` so many.

    Raises:
        BadRequest: these arguments are not of equal number, or not numbers.
    """
    args = request.args
    after = args.get("after", "").split(",")
    asked = [args.getlist(name) for name in ("job", "name", "rank")]
    try:
        every = [
            (job, name, int(rank) if rank else None, int(known or 0))
            for job, name, rank, known in zip(*asked, after, strict=True)
        ]
    except ValueError:
        raise BadRequest("job, name, rank and after: expected one of each for a curve") from None
    here = account()
    curves = [Curve("", job, name, read(here, job), rank) for job, name, rank, _ in every]
    x, across = axis(curves)
    lines = []
    for one, place, known in zip(curves, across, (each[3] for each in every), strict=True):
        some = one.samples
        end = some.count  # it may grow meanwhile
        at = [place(i) for i in range(min(known, end), end)]
        lines.append({"to": end, "x": at, "y": _sent(some.values[known:end])})
    return jsonify({"x": x, "lines": lines})


def axis(curves: Sequence[Curve]) -> tuple[str, list[Callable[[int], float]]]:
    """Return the name of the axis across, and for each curve the function of a place on it.

    It is the jobs' counter if every value has one, and else the time since the job's first value.
    """
    some = [one.samples for one in curves]
    counters = {one.metrics.counter for one in curves if one.samples.count}
    if all(each.is_counted for each in some) and counters - {""}:
        return min(counters), [each.steps.__getitem__ for each in some]
    lasted = (one.samples.at[-1] - one.metrics.begin for one in curves if one.samples.count)
    longest = max(lasted, default=0.0)
    units = (("seconds", 1, 300), ("minutes", 60, 4 * 3600), ("hours", 3600, math.inf))
    unit, length = next((name, size) for name, size, end in units if longest / 1000 < end)

    def since(one: Curve) -> Callable[[int], float]:
        at, begin = one.samples.at, one.metrics.begin
        return lambda place: (at[place] - begin) / 1000 / length

    return f"{unit} since the first value", [since(one) for one in curves]


def groups(names: Iterable[str]) -> list[tuple[str, list[str]]]:
    """Return (title, metrics) of each plot, losses first.

    ``train:loss`` and ``validation:loss`` share a plot, as do ``loss`` and ``eval_loss``.
    """
    plots: dict[str, list[str]] = {}
    for name in names:
        base = _PHASE.sub("", name)
        if base.lower() not in STEPS:
            plots.setdefault(base.lower(), []).append(name)
    found = [
        (some[0] if len(some) == 1 else _PHASE.sub("", some[0]), some) for some in plots.values()
    ]
    return sorted(found, key=lambda one: "loss" not in one[0].lower())


def training_charts(
    here: Account, job: str, most: int, ranked: int = 0
) -> tuple[list[Markup], int]:
    """Return charts of a job's metrics, ``ranked`` of them by rank; and the number left out."""
    metrics = read(here, job)
    plots = groups(list(metrics.samples))
    drawn = [
        curve_chart(f"curve-{job}-{i}", title, [Curve(n, job, n, metrics) for n in names])
        for i, (title, names) in enumerate(plots[:most])
    ]
    for i, (name, ranks) in enumerate(list(metrics.by_rank.items())[:ranked]):
        every = [Curve(f"rank {rank}", job, name, metrics, rank) for rank in sorted(ranks)]
        drawn.append(curve_chart(f"ranks-{job}-{i}", f"{name} of each rank", every))
    return drawn, max(0, len(plots) - most)
