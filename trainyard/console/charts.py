"""Charts of any metric as inline SVG, drawn on the server and readable without scripts.

Series differ by colour and dashes, which the style sheet sets by class, so that they follow dark
mode. Readers who cannot see a chart have its description and its table.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from markupsafe import Markup

from trainyard.console.template_filters import figure, plain

Point = tuple[float, float]

FARTHEST = 1e150
"""Values farther from zero than this are shown as infinite: their differences overflow."""

COLUMN = 2.0
"""Width in pixels of a column within which a line need not show details."""

NARROWEST = 1e-9
"""Least span of a scale, as a part of the value's size: floats have no more digits."""

Item = TypeVar("Item")
Series = tuple[str, Sequence[Point]]
"""Name of a series, and its points (x, y) in the order in which they are joined. y may be NaN or
infinite: the line has a gap there, and a mark at the edge."""

COLOURS, DASHES = 8, 7
"""Number of colours and dashes in the style sheet (``.c0`` …, ``.d0`` …). They have no common
divisor, so that as many series as their product have different pairs."""

LEFT, RIGHT, TOP, BOTTOM = 62, 10, 10, 34
"""Pixels around the plot, for the ticks' texts and the names of the axes."""

DOTS = 40
"""Most points of a chart that show their value under the pointer."""

MARKS = 60
"""Most marks of a chart, for values without a place."""

CELLS = 60
"""Approximate number of values in the table below a chart; of more points every n-th is listed."""


@dataclass(frozen=True, slots=True)
class Scale:
    """A scale of values from ``low`` to ``high`` on pixels from ``start`` to ``stop``."""

    low: float
    high: float
    start: float
    stop: float

    def __call__(self, value: float) -> float:
        """Return the pixel of a value."""
        share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.stop - self.start)

    def ticks(self, most: int) -> list[tuple[float, str]]:
        """Return at most ``most`` round values (1, 2 or 5 times a power of ten) and their texts."""
        step = _step((self.high - self.low) / most)
        first, last = math.ceil(self.low / step - 1e-6), math.floor(self.high / step + 1e-6)
        return [(k * step, _short(k * step, step)) for k in range(first, last + 1)]


@dataclass(frozen=True, slots=True)
class _Plot:
    """Name and scales shared by the parts of a chart."""

    x: str
    across: Scale
    up: Scale

    def at(self, point: Point) -> str:
        return f"{self.across(point[0]):.1f},{self.up(point[1]):.1f}"


def line_chart(
    key: str,
    title: str,
    series: Sequence[Series],
    *,
    x: str = "step",
    y: str = "",
    size: tuple[int, int] = (480, 220),
) -> Markup:
    """Return a figure with one line for each series, a legend for several, and a table.

    Args:
        key: prefix of the ids in it: unique on its page, and stable.
        x: name of the horizontal axis, with its unit; ``y``: of the vertical axis.
        size: width and height in pixels; it shrinks if there is less room.
    """
    placed = [(name, [point for point in points if is_shown(point[0])]) for name, points in series]
    plot = _plot(placed, x, size)
    drawn = [_line(plot, i, points) for i, (_, points) in enumerate(placed)]
    body = [*_grid(plot), *drawn, *_marks(plot, placed), *_dots(plot, placed)]
    return _figure(key, title, placed, plot, y, size, body)


def _plot(series: Sequence[Series], x: str, size: tuple[int, int]) -> _Plot:
    across = [point[0] for _, points in series for point in points]
    up = [point[1] for _, points in series for point in points if is_shown(point[1])]
    width, height = size
    return _Plot(
        x,
        around(across, LEFT, width - RIGHT, room=0.01),
        around(up, height - BOTTOM, TOP),
    )


def _grid(plot: _Plot) -> Iterator[Markup]:
    """Draw ticks with their texts, and grid lines."""
    left, right, bottom = plot.across.start, plot.across.stop, plot.up.start
    for value, text in plot.up.ticks(5):
        yield Markup(
            '<path class="grid" d="M{0:.0f} {2:.1f}H{1:.0f}"/><text x="{3:.0f}" y="{4:.1f}" '
            'text-anchor="end">{5}</text>'
        ).format(left, right, plot.up(value), left - 6, plot.up(value) + 4, text)
    for value, text in plot.across.ticks(6):
        yield Markup(
            '<path class="grid" d="M{0:.1f} {1:.0f}v4"/><text x="{0:.1f}" y="{2:.0f}" '
            'text-anchor="middle">{3}</text>'
        ).format(plot.across(value), bottom, bottom + 17, text)


def _line(plot: _Plot, i: int, points: Sequence[Point]) -> str:
    """Return the series as a path with gaps; a point between gaps is a dot."""
    parts = []
    for run in _runs(points):
        spots = [plot.at(point) for point in thinned(run, plot.across)]
        parts.append(f"M{spots[0]}" + ("h.1" if len(spots) == 1 else "L" + " ".join(spots[1:])))
    return Markup('<path class="line {}" d="{}"/>').format(_class(i), "".join(parts))


def _runs(points: Sequence[Point]) -> Iterator[Sequence[Point]]:
    run: list[Point] = []
    for point in points:
        if is_shown(point[1]):
            run.append(point)
        elif run:
            yield run
            run = []
    if run:
        yield run


def _marks(plot: _Plot, series: Sequence[Series]) -> Iterator[Markup]:
    """Draw values without a place: a triangle at the top for +inf, at the foot for -inf, a cross
    for NaN.
    """
    lost = [
        (i, name, point)
        for i, (name, points) in enumerate(series)
        for point in points
        if not is_shown(point[1])
    ]
    for i, name, (x, y) in _some(lost, MARKS):
        at, low, high = plot.across(x), plot.up.start - 4, plot.up.stop + 4
        shape = f"M{at - 4:.1f} {low - 4:.0f}l8 8m0 -8l-8 8"
        if y == math.inf or y > 0:
            shape = f"M{at - 4:.1f} {high + 4:.0f}h8l-4 -7z"
        elif y < 0:
            shape = f"M{at - 4:.1f} {low - 4:.0f}h8l-4 7z"
        yield Markup('<path class="lost {}" d="{}"><title>{}</title></path>').format(
            _class(i), shape, _said(plot, name, (x, y))
        )


def _dots(plot: _Plot, series: Sequence[Series]) -> Iterator[Markup]:
    """Draw points that show their value; they are visible if they are few."""
    each = DOTS // max(1, len(series))
    for i, (name, points) in enumerate(series):
        placed = [point for point in points if is_shown(point[1])]
        seen = "" if len(placed) <= each // 2 else " unseen"
        for point in _some(placed, each):
            yield Markup('<circle class="dot {}{}" cx="{}" cy="{}" r="{}">').format(
                _class(i), seen, *plot.at(point).split(","), 2.5 if not seen else 6
            ) + Markup("<title>{}</title></circle>").format(_said(plot, name, point))


def _said(plot: _Plot, name: str, point: Point) -> str:
    return f"{plain(name)}: {figure(float(point[1]))} at {plot.x} {figure(float(point[0]))}"


def _figure(
    key: str,
    title: str,
    series: Sequence[Series],
    plot: _Plot,
    y: str,
    size: tuple[int, int],
    body: Sequence[str],
) -> Markup:
    width, height = size
    svg = Markup(
        '<svg viewBox="0 0 {w} {h}" width="{w}" height="{h}" role="img" '
        'aria-labelledby="{key}-title {key}-desc"><title id="{key}-title">{title}</title>'
        '<desc id="{key}-desc">{desc}</desc>{body}<text class="axis" x="{right}" y="{bottom}" '
        'text-anchor="end">{x}</text></svg>'
    ).format(
        **{"w": width, "h": height, "key": key, "title": plain(title), "x": plot.x},
        **{"desc": _described(series, plot.x), "body": Markup("").join(body)},
        **{"right": width - RIGHT, "bottom": height - 3},
    )
    caption = Markup("<strong>{}</strong>{}").format(plain(title), f" ({y})" if y else "")
    legend = _legend(series) if len(series) > 1 else ""
    return Markup('<figure class="chart"><figcaption>{}</figcaption>{}{}{}</figure>').format(
        caption, svg, legend, _table(key, title, series, plot.x)
    )


def _legend(series: Sequence[Series]) -> Markup:
    items = Markup("").join(
        Markup(
            '<li><svg class="key" viewBox="0 0 28 10" width="28" height="10" aria-hidden="true">'
            '<path class="line {}" d="M0 5H28"/></svg>{}</li>'
        ).format(_class(i), plain(name))
        for i, (name, _) in enumerate(series)
    )
    return Markup('<ul class="legend">{}</ul>').format(items)


def _described(series: Sequence[Series], x: str) -> str:
    """Return a description of the lines for people who cannot see them."""
    texts = []
    for name, points in series[:10]:
        known = [point for point in points if is_shown(point[1])]
        if not known:
            texts.append(f"{plain(name)} has no value.")
            continue
        low, high = min(known, key=_up), max(known, key=_up)
        texts.append(
            f"{plain(name)}: {len(points)} points, from {figure(float(known[0][1]))} to "
            f"{figure(float(known[-1][1]))}, lowest {figure(float(low[1]))} at {x} "
            f"{figure(float(low[0]))}, highest {figure(float(high[1]))} at {x} "
            f"{figure(float(high[0]))}."
        )
    return " ".join(texts) + (f" And {len(series) - 10} more." if len(series) > 10 else "")


def _up(point: Point) -> float:
    return point[1]


def _table(key: str, title: str, series: Sequence[Series], x: str) -> Markup:
    """Return the values as a table."""
    by_x = [dict(points) for _, points in series]
    every = sorted({at for points in by_x for at in points})
    rows = list(_some(every, max(10, CELLS // max(1, len(series)))))
    head = Markup("").join(
        Markup('<th class="n" scope="col">{}</th>').format(plain(name)) for name, _ in series
    )
    body = Markup("").join(
        Markup('<tr><th class="n" scope="row">{}</th>{}</tr>').format(
            figure(float(at)),
            Markup("").join(
                Markup('<td class="n">{}</td>').format(figure(points.get(at))) for points in by_x
            ),
        )
        for at in rows
    )
    some = f"numbers ({len(rows)} of {len(every)} points)" if len(rows) < len(every) else "numbers"
    return Markup(
        '<details id="{}-table"><summary>{}</summary><div class="scroll" tabindex="0" role="region"'
        ' aria-label="{}"><table><thead><tr><th class="n" scope="col">{}</th>{}</tr></thead>'
        "<tbody>{}</tbody></table></div></details>"
    ).format(key, some, f"numbers of {plain(title)}", x, head, body)


def _some(items: Sequence[Item], most: int) -> Iterator[Item]:
    """Iterate over at most ``most`` of the items, evenly, with the first and the last."""
    if len(items) <= most:
        yield from items
        return
    for k in range(most):
        yield items[round(k * (len(items) - 1) / max(1, most - 1))]


def _class(i: int) -> str:
    return f"c{i % COLOURS} d{i % DASHES}"


def is_shown(value: float) -> bool:
    """Return whether a value has a place on an axis: NaN and infinity have none."""
    return abs(value) <= FARTHEST


def around(values: Sequence[float], start: float, stop: float, room: float = 0.04) -> Scale:
    """Return a scale that contains all of ``values``, with a little room at both ends.

    ``values``: all of them ``is_shown``. Without values it is from 0 to 1.
    """
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    least = max(abs(low), abs(high)) * NARROWEST
    if high - low <= least:
        more = max(least, abs(high) * 0.05) or 1.0
        low, high = low - more, high + more
    wide = (high - low) * room
    return Scale(low - wide, high + wide, start, stop)


def thinned(points: Sequence[Point], across: Scale) -> Iterator[Point]:
    """Keep the first, lowest, highest and last of the points that share ``COLUMN`` pixels.

    A line through them covers about the same pixels as one through all: no spike is lost.
    """
    column: list[Point] = []
    at: int | None = None
    for point in points:
        if (pixels := int(across(point[0]) / COLUMN)) != at:
            yield from _corners(column)
            column, at = [], pixels
        column.append(point)
    yield from _corners(column)


def _corners(column: list[Point]) -> list[Point]:
    if len(column) <= 4:
        return column
    heights = [point[1] for point in column]
    low, high = heights.index(min(heights)), heights.index(max(heights))
    return [column[i] for i in sorted({0, low, high, len(column) - 1})]


def _step(rough: float) -> float:
    """Return the next 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(n * power for n in (1, 2, 5, 10) if n * power >= rough * 0.999999)


def _short(value: float, step: float) -> str:
    """Return a tick's text, with enough digits to distinguish it from the next one."""
    if not value or abs(value) < step / 2:
        return "0"
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    if abs(value) < 1e6 and digits <= 5:
        return f"{value:,.{digits}f}"
    more = max(0, math.floor(math.log10(abs(value))) - math.floor(math.log10(step) + 1e-9))
    return f"{value:.{min(more, 12)}e}".replace("e+0", "e").replace("e-0", "e-").replace("e+", "e")
