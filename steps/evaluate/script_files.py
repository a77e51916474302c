"""Read the rows of a JSON Lines or Parquet file that a user's script wrote, piece by piece.

A piece is some rows, with a list for each column; all rows of a file have the same columns.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from trainyard.common.errors import DataError

ROWS = 32_768
"""Rows in a piece."""
INDEX = re.compile(r"__index_level_\d+__")
"""Pattern of a column that pandas adds to Parquet by itself."""
SUFFIXES = (".jsonl", ".parquet")


@dataclass(frozen=True, slots=True)
class Piece:
    """Some rows of ``path``."""

    path: Path
    numbers: list[int]
    """Numbers of the lines in JSON Lines, of the rows in Parquet, each from 1."""
    columns: Mapping[str, list[Any]]

    def wrong(self, place: int, column: str, expected: str) -> DataError:
        """Return the error about the value of ``column`` in the ``place``-th of these rows."""
        value = repr(self.columns[column][place])
        shown = value if len(value) <= 60 else f"{value[:60]}…"
        where = f"{row_name(self.path)} {self.numbers[place]}"
        return DataError(f"{self.path.name}: {where}: column {column}: is {shown}; {expected}")


def row_name(path: Path) -> str:
    """Return the word for a row of the file."""
    return "line" if path.suffix == ".jsonl" else "row"


def rows_file(folder: Path, name: str) -> Path | None:
    """Return ``name.jsonl`` or ``name.parquet``; None where neither exists.

    Raises:
        DataError: both exist.
    """
    there = [path for suffix in SUFFIXES if (path := folder / f"{name}{suffix}").is_file()]
    if len(there) > 1:
        raise DataError(f"{' and '.join(path.name for path in there)}: both are there; write one")
    return there[0] if there else None


def pieces(path: Path) -> Iterator[Piece]:
    """Yield the file's rows, ROWS at a time, in their order.

    Raises:
        DataError: a line is not a JSON object or has other columns than the first; the file is
            damaged.
    """
    return _lines(path) if path.suffix == ".jsonl" else _row_groups(path)


def _lines(path: Path) -> Iterator[Piece]:
    numbers: list[int] = []
    columns: dict[str, list[Any]] = {}
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            row = _row(path, number, line)
            if not columns:
                columns = {name: [] for name in row}
            elif row.keys() != columns.keys():
                raise _other_columns(path, number, columns, row)
            for name, value in row.items():
                columns[name].append(value)
            numbers.append(number)
            if len(numbers) == ROWS:
                yield Piece(path, numbers, columns)
                numbers, columns = [], {name: [] for name in columns}
    if numbers:
        yield Piece(path, numbers, columns)


def _row(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{path.name}: line {number}: is not JSON ({error}): {line[:60]!r}; write an object "
            "per line, as json.dumps does"
        ) from None
    if not isinstance(row, dict) or not row:
        raise DataError(
            f"{path.name}: line {number}: is {str(row)[:60]}; expected an object, column → value"
        )
    return row


def _other_columns(
    path: Path, number: int, columns: Mapping[str, Any], row: Mapping[str, Any]
) -> DataError:
    lacks, more = sorted(columns.keys() - row.keys()), sorted(row.keys() - columns.keys())
    said = [f"lacks {', '.join(lacks)}"] * bool(lacks) + [f"has {', '.join(more)}"] * bool(more)
    return DataError(
        f"{path.name}: line {number}: {' and '.join(said)}, unlike the lines before; every row has "
        "the same columns"
    )


def _row_groups(path: Path) -> Iterator[Piece]:
    """Yield one row group after the other: for the whole file, pyarrow 25 keeps all of it in
    memory.
    """
    try:
        with pq.ParquetFile(path) as file:
            names, count = file.schema_arrow.names, 0
            names = [name for name in names if not INDEX.fullmatch(name)]
            if twice := sorted({name for name in names if names.count(name) > 1}):
                raise DataError(f"{path.name}: column {twice[0]}: occurs twice; rename one")
            for group in range(file.num_row_groups):
                for batch in file.iter_batches(ROWS, row_groups=[group], columns=names):
                    if len(batch):
                        numbers = list(range(count + 1, count + len(batch) + 1))
                        yield Piece(path, numbers, batch.to_pydict())
                    count += len(batch)
    except (pa.ArrowException, OSError) as error:
        text = " ".join(str(error).split())[:200]
        raise DataError(f"{path.name}: is not a readable Parquet file: {text}") from None
