"""Whether a training is slower than it should be, and which part of its steps it is.

What it should be, somebody expects: by earlier runs that were alike, or as it is foreseen.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from rich.table import Table

STEP = "step"
"""The whole step, among its parts."""

SLACK = 1.2
"""How much longer than its longest expectation a step takes before anybody says so: what metric
lines of one training differ by anyhow."""

Seconds = Mapping[str, float]
"""Part of an optimizer step → seconds of it, ``STEP`` for the whole step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What steps should take."""

    seconds: Seconds
    most: float
    """Seconds of a step that would still be no surprise."""

    grounds: str
    """Who says so: ``foreseen``, ``3 earlier runs``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """What steps take, beside what they should."""

    found: Seconds
    expected: tuple[Expected, ...] = field(default=())
    """The one that counts first."""

    @property
    def is_slow(self) -> bool:
        """Whether a step takes longer than it ever should."""
        return bool(self.expected) and self.found[STEP] > self.expected[0].most

    @property
    def slowest(self) -> str:
        """The part that takes most of what is too much; ``STEP`` where no part is known."""
        should = self.expected[0].seconds
        known = [part for part in self.found if part != STEP and part in should]
        return max(known, key=lambda part: self.found[part] - should[part], default=STEP)

    def said(self) -> str:
        """``slow: a step takes 2.31 s, and 1.53 s by 3 earlier runs; most of that is data …``."""
        if not self.is_slow:
            return ""
        expected, part = self.expected[0], self.slowest
        much = f"a step takes {self.found[STEP]:.3g} s, and {expected.seconds[STEP]:.3g} s"
        where = ""
        if part != STEP:
            where = f"; the most of that is {part}: {self.found[part]:.3g} s for "
            where += f"{expected.seconds[part]:.3g} s"
        return f"slow: {much} by what {expected.grounds}{where}"

    def table(self) -> Table:
        """A row for the step and each of its parts."""
        table = Table(box=None, pad_edge=False)
        table.add_column("seconds of")
        table.add_column("this run", justify="right")
        for expected in self.expected:
            table.add_column(expected.grounds, justify="right")
        for part in self.found:
            others = (one.seconds.get(part) for one in self.expected)
            table.add_row(part, *map(figure, (self.found[part], *others)))
        return table


def figure(seconds: float | None) -> str:
    """Three digits; empty where nobody knows it."""
    return "" if seconds is None else f"{seconds:.3g}"


def earlier(runs: Sequence[Seconds]) -> Expected | None:
    """What runs that were alike took; None where there are none."""
    runs = [run for run in runs if STEP in run]
    if not runs:
        return None
    parts = [part for part in runs[0] if all(part in run for run in runs)]
    count = len(runs)
    return Expected(
        seconds={part: median(run[part] for run in runs) for part in parts},
        most=SLACK * max(run[STEP] for run in runs),
        grounds=f"{count} earlier run{'' if count == 1 else 's'} took",
    )
