"""Charts: figures drawn by the browser, their descriptions in words, and their points."""

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

from trainyard.console.account_cache import Account, get_account, mark_unfinished
from trainyard.console.metric_curves import Metrics, Samples, read_metrics
from trainyard.console.outcomes import format_number as number
from trainyard.runs.metric_lines import STEPS
from trainyard.runs.run_display import format_duration

page = Blueprint("charts", __name__)

LIBRARY = {"uplot.js": "uplot.iife.min.js", "uplot.css": "uplot.min.css"}
"""Name in addresses to file of uPlot 1.6.31, which the package youplot ships unchanged."""

FARTHEST = 1e150
"""Values farther from zero than this are drawn as infinite, because differences would overflow."""

DESCRIBED_CURVES = 10  # maximum number of a chart's lines that are described in words
_PHASE = re.compile(
    r"^(train|training|validation|valid|val|eval|test)[:_\-./ ]+(?=.)", re.IGNORECASE
)


@page.get("/library/<name>")
def send_library_file(name: str) -> Response:
    """Return a file of the charting library, from its package's folder, without importing it."""
    spec = importlib.util.find_spec("youplot")
    assert spec is not None and spec.submodule_search_locations  # a dependency of this package
    folder = Path(spec.submodule_search_locations[0]) / "vendor"
    return send_from_directory(folder, LIBRARY.get(name, "none"))


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a chart with known points. ``marks``: draw only the points, not a line."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    marks: bool = False


@dataclass(frozen=True, slots=True)
class Curve:
    """A metric of a training job."""

    label: str
    job: str
    name: str
    metrics: Metrics = field(compare=False)

    @property
    def samples(self) -> Samples:
        """Values of the metric."""
        return self.metrics.samples.get(self.name, Samples())

    def format_summary(self) -> str:
        """Return a text with its last, lowest and highest value."""
        some = self.samples
        return _format_summary(
            self.label, some.values, some.lowest, some.highest, self.describe_position
        )

    def describe_position(self, index: int | None) -> str:
        """Return the position of a value: its step, or the time since the job's first value."""
        if index is None:
            return ""
        step = self.samples.steps[index]
        if self.metrics.counter and not math.isnan(step):
            return f"at {self.metrics.counter} {step:g}"
        return (
            f"after {format_duration((self.samples.timestamps[index] - self.metrics.begin) / 1000)}"
        )


def render_chart(key: str, title: str, lines: Sequence[Line], *, x: str) -> Markup:
    """Return a figure with these lines. ``key``: its id on the page; ``x``: name of the x-axis."""
    words = []
    for line in lines[:DESCRIBED_CURVES]:
        if len(line.x) == 1:
            words.append(
                f"{line.label}: {number(float(line.y[0]))} at {x} {number(float(line.x[0]))}"
            )
            continue
        indices = [index for index, value in enumerate(line.y) if math.isfinite(value)]
        low = min(indices, key=line.y.__getitem__, default=None)
        high = max(indices, key=line.y.__getitem__, default=None)
        positions = [f"at {x} {number(float(value))}" for value in line.x]
        words.append(
            _format_summary(
                line.label, line.y, low, high, lambda i, positions=positions: positions[i]
            )
        )  # type: ignore[misc]
    line_data = [
        {"label": line.label, "x": list(line.x), "y": _encode_values(line.y), "marks": line.marks}
        for line in lines
    ]
    return _render_figure(key, title, {"x": x, "lines": line_data}, words)


def render_curve_chart(key: str, title: str, curves: Sequence[Curve]) -> Markup:
    """Return a figure of training metrics, whose points the browser requests."""
    if any(curve.metrics.until is not None for curve in curves):
        mark_unfinished()
    query = {"job": [curve.job for curve in curves], "name": [curve.name for curve in curves]}
    lines = [{"label": curve.label} for curve in curves]
    words = [curve.format_summary() for curve in curves[:DESCRIBED_CURVES]]
    count = sum(curve.samples.count for curve in curves)
    source = f"/curves?{urlencode(query, doseq=True)}"
    return _render_figure(key, title, {"source": source, "lines": lines}, words, count)


def _render_figure(
    key: str, title: str, data: dict[str, Any], words: Sequence[str], count: int = 0
) -> Markup:
    """Return the HTML of a figure: its data for the script, and its descriptions as text."""
    more = len(data["lines"]) - len(words)
    html = render_template(
        "chart.html.j2",
        **{"key": key, "title": title, "count": count, "chart": json.dumps(data)},
        **{"words": [*words, *([f"And {more} more."] if more else [])]},
    )
    # The HTML was rendered, and escaped, by a template.
    return Markup(html)


def _format_summary(
    label: str,
    values: Sequence[float],
    low: int | None,
    high: int | None,
    describe_place: Callable[[int], str],
) -> str:
    """Return a line's last, lowest and highest value as text; ``low`` and ``high`` are indices."""
    if not len(values):
        return f"{label}: no value yet"
    last = f"{label}: last {number(float(values[-1]))}"
    if low is None or high is None:
        return last
    lowest = f"lowest {number(float(values[low]))} {describe_place(low)}"
    return f"{last}, {lowest}, highest {number(float(values[high]))} {describe_place(high)}"


def _encode_values(values: Iterable[float]) -> list[float | str]:
    """Return the values for JSON: NaN and infinity as text, because JSON has no such numbers."""
    return [
        value
        if abs(value) <= FARTHEST
        else "nan"
        if math.isnan(value)
        else "-inf" * (value < 0) or "inf"
        for value in values
    ]


@page.get("/curves")
def send_curve_points() -> Response:
    """Return the new points of each curve (``job``, ``name``): all but the first ``after``.

    Raises:
        BadRequest: these lists differ in length, or ``after`` is not a list of numbers.
    """
    args = request.args
    after = args.get("after", "").split(",")
    try:
        # strict=True raises ValueError for lists of unequal lengths, and int() for other texts.
        every = [
            (job, name, int(count or 0))
            for job, name, count in zip(
                args.getlist("job"), args.getlist("name"), after, strict=True
            )
        ]
    except ValueError:
        raise BadRequest("job, name and after: expected one of each for every curve") from None
    aws = get_account()
    curves = [Curve("", job, name, read_metrics(aws, job)) for job, name, _ in every]
    x, across = choose_axis(curves)
    lines = []
    for curve, find_position, count in zip(
        curves, across, (entry[2] for entry in every), strict=True
    ):
        some = curve.samples
        # Read once, because samples may be added at the same time.
        end = some.count
        positions = [find_position(i) for i in range(min(count, end), end)]
        lines.append({"to": end, "x": positions, "y": _encode_values(some.values[count:end])})
    return jsonify({"x": x, "lines": lines})


def choose_axis(curves: Sequence[Curve]) -> tuple[str, list[Callable[[int], float]]]:
    """Return the name of the x-axis, and for each curve a function from an index to its position.

    The axis is the jobs' counter if every value has one, else the time since the first value.
    """
    some = [curve.samples for curve in curves]
    counters = {curve.metrics.counter for curve in curves if curve.samples.count}
    if all(samples.is_counted for samples in some) and counters - {""}:
        return min(counters), [samples.steps.__getitem__ for samples in some]
    durations = (
        curve.samples.timestamps[-1] - curve.metrics.begin
        for curve in curves
        if curve.samples.count
    )
    longest = max(durations, default=0.0)
    units = (("seconds", 1, 300), ("minutes", 60, 4 * 3600), ("hours", 3600, math.inf))
    unit, length = next((name, size) for name, size, end in units if longest / 1000 < end)

    def make_elapsed_time(curve: Curve) -> Callable[[int], float]:
        """Return a function from an index to the time since the first value, in ``unit``."""
        timestamps, begin = curve.samples.timestamps, curve.metrics.begin
        return lambda index: (timestamps[index] - begin) / 1000 / length

    return f"{unit} since the first value", [make_elapsed_time(curve) for curve in curves]


def group_metrics(names: Iterable[str]) -> list[tuple[str, list[str]]]:
    """Return (title, metrics) of each plot, losses first.

    ``train:loss`` and ``validation:loss`` share a plot, as do ``loss`` and ``eval_loss``.
    """
    plots: dict[str, list[str]] = {}
    for name in names:
        base = _PHASE.sub("", name)
        if base.lower() not in STEPS:
            plots.setdefault(base.lower(), []).append(name)
    named_groups = [
        (some[0] if len(some) == 1 else _PHASE.sub("", some[0]), some) for some in plots.values()
    ]
    return sorted(named_groups, key=lambda group: "loss" not in group[0].lower())


def render_training_charts(aws: Account, job: str, limit: int) -> tuple[list[Markup], int]:
    """Return at most ``limit`` charts of a job's metrics, and the number of charts left out."""
    metrics = read_metrics(aws, job)
    plots = group_metrics(list(metrics.samples))
    charts = [
        render_curve_chart(f"curve-{job}-{i}", title, [Curve(n, job, n, metrics) for n in names])
        for i, (title, names) in enumerate(plots[:limit])
    ]
    return charts, max(0, len(plots) - limit)
