"""What differs between columns of values: one row for each path, whatever column has it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Value:
    """What one run has for a path."""

    text: str
    """As a person reads it."""

    key: str
    """Two runs have the same when this is the same."""

    number: float | None = None
    """For sorting, and for the difference to another run's."""

    known: bool = True
    """False where nobody can tell; ``text`` then says why."""


Column = Mapping[str, Value]
"""Path → value, in the order in which they are shown."""


@dataclass(frozen=True, slots=True)
class Row:
    """One path, and what each column has for it."""

    path: str
    values: tuple[Value | None, ...]

    @property
    def differs(self) -> bool:
        """Whether two columns have, or may have, different values; one that has none differs from
        one that has any."""
        if any(value is not None and not value.known for value in self.values):
            return True
        return len({value and value.key for value in self.values}) > 1


def rows(columns: Sequence[Column], *, everything: bool = False) -> list[Row]:
    """A row for each path of which the columns have different values; ``everything``: for each.

    The columns' order changes the order of the values in a row, and nothing else.
    """
    found = (Row(path, tuple(c.get(path) for c in columns)) for path in order(columns))
    return [row for row in found if everything or row.differs]


def among(
    columns: Sequence[Column], counted: Sequence[bool], *, everything: bool = False
) -> list[Row]:
    """The rows of the columns that count; the others have no values in them, and differ from none.

    A run without a step lacks all that the step was given, which says no more than that.
    """
    places = [place for place, counts in enumerate(counted) if counts]
    found = []
    for row in rows([columns[place] for place in places], everything=everything):
        values: list[Value | None] = [None] * len(columns)
        for place, value in zip(places, row.values, strict=True):
            values[place] = value
        found.append(Row(row.path, tuple(values)))
    return found


def order(columns: Iterable[Iterable[str]]) -> list[str]:
    """Every name once, those first that stand first in any column."""
    first: dict[str, int] = {}
    for column in columns:
        for position, name in enumerate(column):
            first[name] = min(position, first.get(name, position))
    return sorted(first, key=lambda name: (first[name], name))
