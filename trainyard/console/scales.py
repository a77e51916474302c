"""Axes of a chart: where a value lies, which values are named, and how few points show all."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

Point = tuple[float, float]

FARTHEST = 1e150
"""What is farther from zero is shown as infinite: differences of such values overflow."""

COLUMN = 2.0
"""Pixels across that a line needs not tell apart."""

NARROWEST = 1e-9
"""A span is at least so large a part of the value that it is around: floats end soon after."""


def is_shown(value: float) -> bool:
    """Whether a value has a place on an axis: NaN and the infinite have none."""
    return abs(value) <= FARTHEST


@dataclass(frozen=True, slots=True)
class Scale:
    """Values from ``low`` to ``high`` on pixels from ``start`` to ``stop``."""

    low: float
    high: float
    start: float
    stop: float
    is_log: bool = False

    def __call__(self, value: float) -> float:
        """The pixel of a value; ``value`` > 0 on a logarithmic scale."""
        low, high = self.low, self.high
        if self.is_log:
            low, high, value = math.log10(low), math.log10(high), math.log10(value)
        return self.start + (value - low) / (high - low) * (self.stop - self.start)

    def ticks(self, most: int) -> list[tuple[float, str]]:
        """At most so many round values (1, 2 or 5 times a power of ten) and their texts."""
        if self.is_log and self.high / self.low >= 10:
            return [(value, _short(value, value)) for value in self._decades(most)]
        step = _step((self.high - self.low) / most)
        first, last = math.ceil(self.low / step - 1e-6), math.floor(self.high / step + 1e-6)
        return [(k * step, _short(k * step, step)) for k in range(first, last + 1)]

    def _decades(self, most: int) -> list[float]:
        first, last = math.ceil(math.log10(self.low) - 1e-6), math.floor(math.log10(self.high))
        every = max(1, math.ceil((last - first + 1) / most))
        factors = (1, 2, 5) if (last - first + 1) * 3 <= most else (1,)
        found = [factor * 10.0**k for k in range(first - 1, last + 1, every) for factor in factors]
        return [value for value in found if self.low <= value * 1.000001 <= self.high * 1.000002]


def around(
    values: Sequence[float], start: float, stop: float, *, is_log: bool = False, room: float = 0.04
) -> Scale:
    """A scale that has all of ``values``, with a little room at both ends.

    ``values``: each one ``is_shown``; positive if ``is_log``. Without any it is from 0 to 1.
    """
    low, high = (min(values), max(values)) if values else (1.0, 10.0) if is_log else (0.0, 1.0)
    if is_log:
        wide = max(high / low, 1.2) ** room
        return Scale(low / wide, high * wide, start, stop, True)
    least = max(abs(low), abs(high)) * NARROWEST
    if high - low <= least:
        more = max(least, abs(high) * 0.05) or 1.0
        low, high = low - more, high + more
    wide = (high - low) * room
    return Scale(low - wide, high + wide, start, stop)


def thinned(points: Sequence[Point], across: Scale) -> Iterator[Point]:
    """Of the points that share ``COLUMN`` pixels the first, the lowest, the highest and the last.

    A line through them covers the same pixels, about, as one through all: no spike is lost.
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
    """The next 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(n * power for n in (1, 2, 5, 10) if n * power >= rough * 0.999999)


def _short(value: float, step: float) -> str:
    """A tick's text, with as many digits as tell it from the next one."""
    if not value or abs(value) < step / 2:
        return "0"
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    if abs(value) < 1e6 and digits <= 5:
        return f"{value:,.{digits}f}"
    more = max(0, math.floor(math.log10(abs(value))) - math.floor(math.log10(step) + 1e-9))
    return f"{value:.{min(more, 12)}e}".replace("e+0", "e").replace("e-0", "e-").replace("e+", "e")
