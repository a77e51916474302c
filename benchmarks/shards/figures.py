"""Rounds, ratios and targets: how a figure comes about, and what it is held against."""

import operator
import statistics
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Figure:
    """Measurements of one thing, one for each round."""

    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)

    @property
    def low(self) -> float:
        return min(self.rounds)

    @property
    def high(self) -> float:
        return max(self.rounds)

    def over(self, other: "Figure") -> "Figure":
        """Round by round: what disturbed the machine in a round disturbed both."""
        pairs = zip(self.rounds, other.rounds, strict=True)
        return Figure(tuple(mine / its for mine, its in pairs))

    def less(self, other: "Figure") -> "Figure":
        """Without the median of the other."""
        return Figure(tuple(mine - other.median for mine in self.rounds))

    def rate(self, amount: float) -> "Figure":
        """Of seconds: the amount a second."""
        return Figure(tuple(amount / seconds for seconds in self.rounds))

    def text(self, unit: float = 1, digits: int = 2) -> str:
        """Median and spread: ``12.3 (11.0–14.1)``."""
        median, low, high = (f"{x / unit:,.{digits}f}" for x in (self.median, self.low, self.high))
        return f"{median} ({low}–{high})"

    def data(self) -> dict[str, Any]:
        return {
            "median": self.median,
            "min": self.low,
            "max": self.high,
            "rounds": list(self.rounds),
        }


@dataclass(frozen=True, slots=True)
class Target:
    """What the median of a figure is held against."""

    what: str
    figure: Figure
    sign: Literal["≥", "≤"]
    demanded: float
    unit: Literal["×", "%"] = "×"

    @property
    def met(self) -> bool:
        compare = operator.ge if self.sign == "≥" else operator.le
        return compare(self.figure.median, self.demanded)

    def data(self) -> dict[str, Any]:
        demanded = f"{self.sign} {self.demanded:g} {self.unit}"
        return {"what": self.what, "demanded": demanded, "met": self.met} | self.figure.data()


@dataclass(slots=True)
class Section:
    """One part of the benchmark: its table, its targets, and all of its figures."""

    name: str
    title: str
    columns: tuple[str, ...] = ()
    rows: list[tuple[str, ...]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)
