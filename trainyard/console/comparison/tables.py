"""Rows of the comparison as a page shows them: against the baseline, sorted, without empty runs."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from trainyard.runs.comparing.differences import Row, Value

BASE, SAME, OTHER, ADDED, MISSING, UNKNOWN = "base same other added missing unknown".split()
SIGNS = {BASE: "", SAME: "=", OTHER: "≠", ADDED: "+", MISSING: "", UNKNOWN: "?"}


@dataclass(frozen=True, slots=True)
class Cell:
    """One run's value."""

    text: str
    kind: str
    """How it compares with the baseline's; each kind has its sign."""
    note: str = ""
    """The difference to the baseline's number."""
    href: str = ""

    @property
    def sign(self) -> str:
        """What says the same as its colour."""
        return SIGNS[self.kind]


@dataclass(frozen=True, slots=True)
class Line:
    """One path, and the shown runs' cells for it."""

    name: str
    path: str
    """By which the runs are sorted: table and name."""
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A part of the page."""

    name: str
    runs: tuple[int, ...]
    """The runs that have a value in it, by their numbers."""
    groups: Mapping[str, Sequence[Line]]
    hidden: int = 0
    """How many runs have none."""

    @property
    def lines(self) -> list[tuple[str, Line]]:
        """(group, line) of all of them."""
        return [(group, line) for group, lines in self.groups.items() for line in lines]


Delta = Callable[[float], str]
"""How a positive difference is written."""
Link = Callable[[str, Row, int], str]
"""(group, row, run's number) → where a cell leads; empty: nowhere."""


def table(
    name: str,
    groups: Mapping[str, Sequence[Row]],
    base: int,
    order: Sequence[int],
    *,
    delta: Delta | None = None,
    link: Link = lambda group, row, run: "",
) -> Table:
    """Rows by group as a table of the runs in ``order``, of which number ``base`` is the baseline.

    ``delta``: how numbers are followed by how far they are from the baseline's; None: not at all.
    """
    everything = [row for rows in groups.values() for row in rows]
    filled = [run for run in order if any(row.values[run] for row in everything)]
    return Table(
        name=name,
        runs=tuple(filled),
        groups={
            group: [
                Line(
                    row.path,
                    f"{name}/{group}/{row.path}",
                    tuple(
                        replace(_cell(row, run, base, delta=delta), href=link(group, row, run))
                        for run in filled
                    ),
                )
                for row in rows
            ]
            for group, rows in groups.items()
            if rows
        },
        hidden=len(order) - len(filled),
    )


def _cell(row: Row, run: int, base: int, *, delta: Delta | None) -> Cell:
    value, other = row.values[run], row.values[base]
    if value is None:
        return Cell("", MISSING)
    if not value.known:
        return Cell(value.text, UNKNOWN)
    if run == base:
        return Cell(value.text, BASE)
    if other is None:
        return Cell(value.text, ADDED)
    if not other.known:
        return Cell(value.text, UNKNOWN)
    same = other.key == value.key
    return Cell(value.text, SAME if same else OTHER, _far(value, other, delta) if delta else "")


def _far(value: Value, base: Value | None, delta: Delta) -> str:
    if base is None or value.number is None or base.number is None or value.key == base.key:
        return ""
    by = value.number - base.number
    if by != by:
        return ""
    share = f" ({by / abs(base.number):+.1%})" if base.number else ""
    if delta(abs(by)) == delta(0.0):
        return share.strip()
    return f"{'+' if by >= 0 else '-'}{delta(abs(by))}{share}"


def ordered(groups: Mapping[str, Sequence[Row]], count: int, sort: str, name: str) -> list[int]:
    """The runs' numbers, sorted by the row that ``sort`` names; ``-`` before it: the largest first.

    Runs without a value, and without a number where others have one, come last; where the table has
    no such row the runs are in the address' order.
    """
    wanted = sort.removeprefix("-")
    paths = {f"{name}/{group}/{row.path}": row for group, rows in groups.items() for row in rows}
    row = paths.get(wanted)
    if row is None:
        return []
    placed = [run for run in range(count) if _number(row, run) is not None]
    placed.sort(key=lambda run: _number(row, run) or 0.0, reverse=sort.startswith("-"))
    named = [run for run in range(count) if row.values[run] is not None and run not in placed]
    named.sort(key=lambda run: getattr(row.values[run], "text", ""))
    return [*placed, *named, *(run for run in range(count) if row.values[run] is None)]


def _number(row: Row, run: int) -> float | None:
    value = row.values[run]
    number = value.number if value else None
    return None if number is None or math.isnan(number) else number
