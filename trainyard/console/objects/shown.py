"""What a page shows of an object."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

ROWS, COLUMNS, CELL = 50, 40, 400
"""Rows, columns and characters of a cell that a table shows."""

Kind = Literal["empty", "text", "json", "table", "picture", "archive", "binary"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What a page shows of an object."""

    kind: Kind
    said: str
    """What it is, and what is left out, in words."""

    text: str = ""
    """Of a text, JSON, or the bytes of a binary in hex."""

    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = field(default=())
    """Of a table; of an archive: name, bytes."""


def table(said: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Preview:
    """A table, of which the first rows and columns are shown."""
    cut = f", the first {COLUMNS} of {len(columns)} columns" if len(columns) > COLUMNS else ""
    return Preview(
        kind="table",
        said=f"{said}{cut}",
        columns=tuple(columns[:COLUMNS]),
        rows=tuple(tuple(cell[:CELL] for cell in row[:COLUMNS]) for row in rows[:ROWS]),
    )
