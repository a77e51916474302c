"""Check the columns of the scores that a user's script writes, and convert them to the gate's.

``example``           a string or an integer; ``hash_example_ids`` turns it into 64 bits; one
                      row each
``group``             likewise: examples of one group depend on each other; optional
``slice.<name>``      a string, an integer, true, false or null
``<metric>``          a number, or true and false: its weight is 1
``<metric>.sum``      a number, and
``<metric>.weight``   a number of 0 or more: the metric of any rows is Σ sum ÷ Σ weight
``probability``       a number from 0 to 1, of a binary classifier, and
``label``             0 or 1

``training.scores`` describes the columns of the gate's table.
"""

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from training.scores import Block
from trainyard.common.errors import DataError, suggest_nearest

# Read the rows of a JSON Lines or Parquet file that a user's script wrote, piece by piece.
#
# A piece is a number of rows, with a list for each column. All rows of a file have the same
# columns.

ROWS = 32_768
"""Maximum rows in a piece."""
INDEX = re.compile(r"__index_level_\d+__")
"""Pattern of a column that pandas adds to Parquet on its own."""
SUFFIXES = (".jsonl", ".parquet")


@dataclass(frozen=True, slots=True)
class Piece:
    """Some rows of the file ``path``."""

    path: Path
    numbers: list[int]
    """Numbers of the lines (JSON Lines) or rows (Parquet) in the file, from 1."""
    columns: Mapping[str, list[Any]]

    def make_value_error(self, index: int, column: str, expected: str) -> DataError:
        """Return the error about the value of ``column`` at index ``index`` of the piece."""
        value = repr(self.columns[column][index])
        excerpt = value if len(value) <= 60 else f"{value[:60]}…"
        row = f"{name_row_unit(self.path)} {self.numbers[index]}"
        return DataError(f"{self.path.name}: {row}: column {column}: is {excerpt}; {expected}")


def name_row_unit(path: Path) -> str:
    """Return the word for a row of the file in messages: "line" or "row"."""
    return "line" if path.suffix == ".jsonl" else "row"


def find_rows_file(folder: Path, name: str) -> Path | None:
    """Return the path of ``name.jsonl`` or ``name.parquet``; None if neither exists.

    Raises:
        DataError: both exist.
    """
    paths = [path for suffix in SUFFIXES if (path := folder / f"{name}{suffix}").is_file()]
    if len(paths) > 1:
        raise DataError(f"{' and '.join(path.name for path in paths)}: both exist; write only one")
    return paths[0] if paths else None


def read_pieces(path: Path) -> Iterator[Piece]:
    """Yield the file's rows in order, at most ROWS at a time.

    Raises:
        DataError: a line is not a JSON object, or has other columns than the first; or the file is
            damaged.
    """
    return _read_json_lines(path) if path.suffix == ".jsonl" else _read_row_groups(path)


def _read_json_lines(path: Path) -> Iterator[Piece]:
    """Yield the rows of a JSON Lines file as pieces; raise DataError for a bad line."""
    numbers: list[int] = []
    columns: dict[str, list[Any]] = {}
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            row = _parse_row(path, number, line)
            if not columns:
                columns = {name: [] for name in row}
            elif row.keys() != columns.keys():
                raise _make_columns_error(path, number, columns, row)
            for name, value in row.items():
                columns[name].append(value)
            numbers.append(number)
            if len(numbers) == ROWS:
                yield Piece(path, numbers, columns)
                numbers, columns = [], {name: [] for name in columns}
    if numbers:
        yield Piece(path, numbers, columns)


def _parse_row(path: Path, number: int, line: bytes) -> dict[str, Any]:
    """Return the JSON object in a line; raise DataError if it is not one."""
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


def _make_columns_error(
    path: Path, number: int, columns: Mapping[str, Any], row: Mapping[str, Any]
) -> DataError:
    """Return the error about a line whose columns differ from the first line's."""
    missing, more = sorted(columns.keys() - row.keys()), sorted(row.keys() - columns.keys())
    texts = [f"lacks {', '.join(missing)}"] * bool(missing)
    texts += [f"has {', '.join(more)}"] * bool(more)
    return DataError(
        f"{path.name}: line {number}: {' and '.join(texts)}, unlike the lines before; every row "
        "must have the same columns"
    )


def _read_row_groups(path: Path) -> Iterator[Piece]:
    """Yield the rows of a Parquet file as pieces, read row group by row group, because pyarrow 25
    keeps all of the file in memory if it reads it as a whole.
    """
    try:
        with pq.ParquetFile(path) as file:
            names, count = file.schema_arrow.names, 0
            names = [name for name in names if not INDEX.fullmatch(name)]
            if repeated := sorted({name for name in names if names.count(name) > 1}):
                raise DataError(f"{path.name}: column {repeated[0]}: occurs twice; rename one")
            for group in range(file.num_row_groups):
                for batch in file.iter_batches(ROWS, row_groups=[group], columns=names):
                    if len(batch):
                        numbers = list(range(count + 1, count + len(batch) + 1))
                        yield Piece(path, numbers, batch.to_pydict())
                    count += len(batch)
    except (pa.ArrowException, OSError) as error:
        text = " ".join(str(error).split())[:200]
        raise DataError(f"{path.name}: is not a readable Parquet file: {text}") from None


NUMBERS = frozenset((int, float, bool))
IDS = frozenset((str, int))
SLICES: frozenset[type] = frozenset((str, int, bool, type(None)))
SLICE = "slice."
ROW = "row"
"""Additional column that the table does not have: the number of the row in its file, int64."""
PREDICTIONS = ("probability", "label")


def hash_example_ids(values: Sequence[str | int]) -> np.ndarray:
    """Return hashes of the ids, int64 (n,): BLAKE2b, 8 bytes little-endian, of the text in UTF-8.

    7 and "7" are the same id. Two different ids get the same 64 bits with probability 2^-64.
    """
    texts = (str(value).encode("utf-8", "surrogatepass") for value in values)
    digests = b"".join(hashlib.blake2b(text, digest_size=8).digest() for text in texts)
    return np.frombuffer(digests, "<i8").astype(np.int64)


def convert_to_gate_columns(piece: Piece, metrics: Sequence[str], slices: Sequence[str]) -> Block:
    """Return the piece's rows as columns of the gate's table, and the column ROW.

    Args:
        metrics: metrics of the recipe; one without a column is left out.
        slices: slices that the piece must have.

    Raises:
        DataError: a column or value is invalid; names file, row, column, value and what was
            expected.
    """
    names = list(piece.columns)
    _check_names(piece, metrics, slices)
    block = build_id_columns(piece)
    for name in (name for name in names if name.startswith(SLICE)):
        _check_types(piece, name, SLICES, "expected a string, an integer, true, false or null")
        texts = [None if value is None else str(value) for value in piece.columns[name]]
        block[name] = np.array(texts, object)
    for metric in metrics:
        if metric in names:
            block[f"{metric}.sum"] = _read_numbers(piece, metric)
            block[f"{metric}.weight"] = np.ones(len(piece.numbers))
        elif f"{metric}.sum" in names:
            block[f"{metric}.sum"] = _read_numbers(piece, f"{metric}.sum")
            block[f"{metric}.weight"] = _read_numbers(piece, f"{metric}.weight", lower_bound=0)
    if "probability" in names:
        block["probability"] = _read_numbers(piece, "probability", lower_bound=0, upper_bound=1)
        labels = _read_numbers(piece, "label")
        is_label = (labels == 0) | (labels == 1)
        if not is_label.all():
            raise piece.make_value_error(int(np.argmin(is_label)), "label", "expected 0 or 1")
        block["label"] = labels.astype(np.uint8)
    return block


def build_id_columns(piece: Piece) -> dict[str, np.ndarray]:
    """Return the columns ``example``, ``group`` and ROW.

    Raises:
        DataError: an id is missing, or is neither text nor a whole number.
    """
    if "example" not in piece.columns:
        raise DataError(
            f"{piece.path.name}: has no column example; it names each row: a key of the data, or "
            "the row's number in the test data, but the same for every model"
        )
    example = _hash_column_ids(piece, "example")
    return {
        "example": example,
        "group": _hash_column_ids(piece, "group") if "group" in piece.columns else example,
        ROW: np.array(piece.numbers, np.int64),
    }


def _check_names(piece: Piece, metrics: Sequence[str], slices: Sequence[str]) -> None:
    """Raise DataError for an unknown or a missing column, or an incomplete pair of columns."""
    names, file = piece.columns.keys(), piece.path.name
    parts = [f"{metric}.{part}" for metric in metrics for part in ("sum", "weight")]
    known = ["example", "group", *metrics, *parts, *PREDICTIONS]
    for name in names:
        if name not in known and (not name.startswith(SLICE) or name == SLICE):
            raise DataError(
                f"{file}: unknown column {name}; "
                f"{suggest_nearest(name, [*known, *(f'{SLICE}{n}' for n in slices)])}; a metric "
                "must be listed in evaluate.metrics"
            )
    for metric in metrics:
        pair = [part for part in (f"{metric}.sum", f"{metric}.weight") if part in names]
        if len(pair) == 1 or (pair and metric in names):
            raise DataError(
                f"{file}: metric {metric} has columns "
                f"{', '.join(n for n in (metric, *pair) if n in names)}; write {metric} alone, or "
                f"{metric}.sum and {metric}.weight"
            )
    for name in slices:
        if f"{SLICE}{name}" not in names:
            raise DataError(
                f"{file}: has no column {SLICE}{name}, and evaluate.slices lists {name}; "
                f"{suggest_nearest(f'{SLICE}{name}', list(names))}"
            )
    if len([name for name in PREDICTIONS if name in names]) == 1:
        raise DataError(f"{file}: only one of probability and label exists; write both, or neither")


def _hash_column_ids(piece: Piece, name: str) -> np.ndarray:
    """Return the hashes of a column of ids, int64 (n,)."""
    values = piece.columns[name]
    _check_types(piece, name, IDS, "expected a string or an integer: its name in the data")
    return hash_example_ids(values)


def _read_numbers(
    piece: Piece, name: str, lower_bound: float = -math.inf, upper_bound: float = math.inf
) -> np.ndarray:
    """Return the column as float64; raise DataError for a value that is not in the range."""
    bounds = "" if lower_bound == -math.inf else f" of {lower_bound:g} or more"
    bounds = bounds if upper_bound == math.inf else f" from {lower_bound:g} to {upper_bound:g}"
    expected = f"expected a finite number{bounds}"
    _check_types(piece, name, NUMBERS, expected)
    values = piece.columns[name]
    try:
        numbers = np.array(values, np.float64)
    except OverflowError:
        index = next(i for i, value in enumerate(values) if not _is_finite_number(value))
        raise piece.make_value_error(index, name, expected) from None
    right = np.isfinite(numbers) & (numbers >= lower_bound) & (numbers <= upper_bound)
    if not right.all():
        raise piece.make_value_error(int(np.argmin(right)), name, expected)
    return numbers


def _is_finite_number(value: float) -> bool:
    """Return whether the number is finite and within float64."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _check_types(piece: Piece, name: str, allowed_types: frozenset[type], expected: str) -> None:
    """Raise DataError for the first value whose type is not one of ``allowed_types``."""
    values = piece.columns[name]
    if not set(map(type, values)) <= allowed_types:
        index = next(i for i, value in enumerate(values) if type(value) not in allowed_types)
        raise piece.make_value_error(index, name, expected)
