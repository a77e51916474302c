"""Check whether a training is slower than expected, and which part of its steps it is.

The expectation comes from similar earlier runs, or from a prediction.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from rich.table import Table

STEP = "step"
"""Name of the whole step, among its parts."""

SLACK = 1.2
"""Factor over the longest expectation from which a step counts as slow: metric lines of one
training differ by less anyway."""

Seconds = Mapping[str, float]
"""Part of an optimizer step → its seconds, ``STEP`` for the whole step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedTime:
    """Expected time of steps."""

    seconds: Seconds
    most: float
    """Longest time of a step in seconds that is no surprise."""

    grounds: str
    """Source of the expectation: ``foreseen``, ``3 earlier runs``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Measured time of steps, beside the expected one."""

    found: Seconds
    expected: tuple[ExpectedTime, ...] = field(default=())
    """Expectations; the first one counts."""

    @property
    def is_slow(self) -> bool:
        """True if a step takes longer than the longest expectation."""
        return bool(self.expected) and self.found[STEP] > self.expected[0].most

    @property
    def slowest(self) -> str:
        """Part with the largest excess; ``STEP`` if no part is known."""
        should = self.expected[0].seconds
        parts = [part for part in self.found if part != STEP and part in should]
        return max(parts, key=lambda part: self.found[part] - should[part], default=STEP)

    def said(self) -> str:
        """Return ``slow: a step takes 2.31 s, and 1.53 s by 3 earlier runs; most of that is …``."""
        if not self.is_slow:
            return ""
        expectation, part = self.expected[0], self.slowest
        much = f"a step takes {self.found[STEP]:.3g} s, and {expectation.seconds[STEP]:.3g} s"
        detail = ""
        if part != STEP:
            detail = f"; the most of that is {part}: {self.found[part]:.3g} s for "
            detail += f"{expectation.seconds[part]:.3g} s"
        return f"slow: {much} by what {expectation.grounds}{detail}"

    def table(self) -> Table:
        """Return a table with a row for the step and each of its parts."""
        table = Table(box=None, pad_edge=False)
        table.add_column("seconds of")
        table.add_column("this run", justify="right")
        for expectation in self.expected:
            table.add_column(expectation.grounds, justify="right")
        for part in self.found:
            others = (other.seconds.get(part) for other in self.expected)
            table.add_row(part, *map(figure, (self.found[part], *others)))
        return table


def figure(seconds: float | None) -> str:
    """Return three digits; empty for None."""
    return "" if seconds is None else f"{seconds:.3g}"


def earlier(runs: Sequence[Seconds]) -> ExpectedTime | None:
    """Return the expectation from similar runs; None if there are none."""
    runs = [run for run in runs if STEP in run]
    if not runs:
        return None
    parts = [part for part in runs[0] if all(part in run for run in runs)]
    count = len(runs)
    return ExpectedTime(
        seconds={part: median(run[part] for run in runs) for part in parts},
        most=SLACK * max(run[STEP] for run in runs),
        grounds=f"{count} earlier run{'' if count == 1 else 's'} took",
    )
