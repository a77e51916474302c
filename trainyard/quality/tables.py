"""Data sets as columns of text: CSV, JSON and JSON Lines."""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Cells = list[str | None]
"""Cells of a column; None for a missing value."""


class DataError(Exception):
    """The data or their description are invalid; the message names file and line."""


@dataclass(frozen=True, slots=True)
class Table:
    """A data set; ``columns``: name → cells, ``rows`` of them each, in the order of the files."""

    columns: dict[str, Cells]
    rows: int

    def column(self, attribute: str) -> Cells:
        """Return a column by name, or by position from 0. Raises :class:`DataError`."""
        name = attribute.removeprefix("$.")
        if name in self.columns:
            return self.columns[name]
        if name.isdecimal() and int(name) < len(self.columns):
            return list(self.columns.values())[int(name)]
        column_names = ", ".join(self.columns)
        raise DataError(f"there is no column {attribute!r}; the data set has {column_names}")


def read(folder: Path, form: dict[str, Any]) -> Table:
    """Read all files at or below ``folder``, by path; ``form`` is Model Monitor's dataset_format.

    Raises :class:`DataError` for another format, and for files that are not in theirs.
    """
    files = [folder] if folder.is_file() else _files(folder)
    if "csv" in form:
        table = _from_csv(files, bool((form["csv"] or {}).get("header", True)))
    elif "json" in form:
        table = _from_records(files, bool((form["json"] or {}).get("lines", True)))
    else:
        raise DataError(f"dataset_format {json.dumps(form)}: csv and json are read here")
    if not table.rows:
        raise DataError(f"{folder} holds no rows")
    return table


def _files(folder: Path) -> list[Path]:
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return [path for path in paths if not path.name.startswith((".", "_"))]


def _from_csv(files: list[Path], header: bool) -> Table:
    """Read CSV; without a header the columns are ``_c0``, ``_c1``, … as with AWS's analyser."""
    names: list[str] = []
    rows: list[Cells] = []
    for path in files:
        try:
            lines = [line for line in csv.reader(io.StringIO(_text(path), newline="")) if line]
        except csv.Error as error:
            raise DataError(f"{path.name}: {error}") from None
        if header and lines:
            first_row = lines.pop(0)
            if names and first_row != names:
                raise DataError(f"{path.name}: its header differs from that of {files[0].name}")
            names = first_row
        for number, line in enumerate(lines, start=1 + header):
            names = names or [f"_c{index}" for index in range(len(line))]
            if len(line) != len(names):
                message = f"{len(line)} columns; {len(names)} are expected"
                raise DataError(f"{path.name}, row {number}: {message}")
            rows.append([cell if cell.strip() else None for cell in line])
    columns = {name: [row[index] for row in rows] for index, name in enumerate(names)}
    return Table(columns, len(rows))


def _from_records(files: list[Path], lines: bool) -> Table:
    return of_records(record for path in files for record in _records(path, lines))


def of_records(records: Iterable[Mapping[str, Any]]) -> Table:
    """Return records as columns; objects within objects become columns such as ``a.b``."""
    flat = [dict(_flat(record)) for record in records]
    names = dict.fromkeys(name for record in flat for name in record)
    return Table({name: [record.get(name) for record in flat] for name in names}, len(flat))


def _records(path: Path, lines: bool) -> Iterator[dict[str, Any]]:
    texts = _text(path).split("\n") if lines else [_text(path)]
    for number, text in enumerate(texts, start=1):
        if not text.strip():
            continue
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path.name}, line {number} is not JSON: {error}") from None
        for record in content if isinstance(content, list) else [content]:
            if not isinstance(record, dict):
                raise DataError(f"{path.name}, line {number}: a JSON object is expected")
            yield record


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path.name} is not UTF-8: {error}") from None


def _flat(record: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str | None]]:
    for name, value in record.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        elif value is None or isinstance(value, str):
            yield f"{prefix}{name}", value or None
        else:
            yield f"{prefix}{name}", json.dumps(value, default=str)


def numbers(cells: Cells) -> np.ndarray:
    """Return the cells as float64; NaN if a cell is empty or not a number."""
    return np.array([_number(cell) for cell in cells], float)


def _number(cell: str | None) -> float:
    try:
        return float(cell) if cell is not None else float("nan")
    except ValueError:
        return float("nan")


def is_integer(cell: str) -> bool:
    """Return whether a cell is written as an integer."""
    digits = cell.strip().lstrip("+-")
    return digits.isdecimal() and digits.isascii()
