"""Read the rows of a channel from CSV without a header, libsvm or Parquet.

CSV and libsvm are read as XGBoost's own parser reads them. The label is the first column. With
``csv_weights``, the second column is the weight of the row.
"""

import csv
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from trainyard.emulator.algorithms.xgboost.facts import CSV, LIBSVM
from trainyard.emulator.algorithms.xgboost.hyperparameters import UserError

DEPTH = 3  # maximum levels of a file's path below a channel


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a channel: ``features`` has shape n × columns, dense or CSR; ``label`` has length n;
    ``weight`` has length n or is None.
    """

    features: Any
    label: np.ndarray
    weight: np.ndarray | None = None

    def widen_rows(self, columns: int) -> "Rows":
        """Return the rows with at least ``columns`` columns. A sparse file may omit the last
        ones.
        """
        if not sparse.issparse(self.features) or self.features.shape[1] >= columns:
            return self
        wide = self.features.copy()
        wide.resize(self.features.shape[0], columns)
        return replace(self, features=wide)


def read_channel(folder: Path, form: str, has_weights: bool) -> Rows | None:
    """Return all rows of ``folder`` (or of a file) in the format ``form``. Return None if there are
    none. Raises UserError if they cannot be read.
    """
    files = [path for path in _iter_files(folder) if path.stat().st_size]
    if not files:
        return None
    if form == CSV:
        rows = _read_csv_rows(files, has_weights)
    elif form == LIBSVM:
        rows = _read_libsvm_rows(files)
    else:
        rows = _read_parquet_rows(files)
    if not rows.label.size:
        raise UserError("Got input data without labels. Please check the input data set.")
    return rows


def _iter_files(folder: Path) -> Iterator[Path]:
    """Iterate over the data files, sorted by path. Skip names that start with ``.`` or ``_``."""
    for path in [folder] if folder.is_file() else sorted(folder.rglob("*")):
        inner = path.relative_to(folder).parts
        if path.is_file() and len(inner) <= DEPTH and not path.name.startswith((".", "_")):
            yield path


def detect_delimiter(line: str) -> str:
    """Return the column separator of a CSV file whose first line is ``line``. Raises UserError if
    there is none.
    """
    try:
        return csv.Sniffer().sniff(line).delimiter
    except csv.Error as error:
        raise UserError(f"Could not determine delimiter on line {line[:50]}:\n{error}") from None


def _read_csv_rows(files: list[Path], has_weights: bool) -> Rows:
    with files[0].open(errors="ignore") as first:
        separator = detect_delimiter(first.readline())
    tables = [_read_csv_table(path, separator) for path in files]
    widths = {table.shape[1] for table in tables}
    if len(widths) > 1:
        raise UserError(
            f"Failed to load csv data: the files differ in their columns: {sorted(widths)}"
        )
    table = np.concatenate(tables)
    label, weight = table[:, 0], table[:, 1] if has_weights else None
    if np.isnan(label).any():
        row = int(np.flatnonzero(np.isnan(label))[0]) + 1
        raise UserError(
            f"Failed to load csv data: row {row} has no number as its label. The label must be the "
            "first column, and the file must not have a header line"
        )
    return Rows(table[:, 2 if has_weights else 1 :], label, weight)


def _read_csv_table(path: Path, separator: str) -> np.ndarray:
    """Return the cells as float32. An empty or non-numeric cell is NaN, as in XGBoost's parser."""
    options: dict[str, Any] = {"dtype": np.float32, "comments": None, "delimiter": separator}
    # loadtxt is fast but refuses missing cells; genfromtxt accepts them but is slow.
    try:
        return np.loadtxt(path, ndmin=2, **options)
    except ValueError:
        pass
    try:
        table = np.genfromtxt(path, ndmin=2, **options)
    except ValueError as wrong:  # rows of different widths; the error names their line numbers
        text = " ".join(str(wrong).split())
        raise UserError(f"Failed to load csv data: {path.name}: {text}") from None
    print(f"{path.name}: cells that are empty or not numbers count as missing", flush=True)
    return table


def _read_libsvm_rows(files: list[Path]) -> Rows:
    """Read lines ``label[:weight] index:value …``. Indices start at 0, the default of XGBoost's
    ``indexing_mode``.
    """
    labels, weights, values, columns, starts = [], [], [], [], [0]
    for path in files:
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            if not (parts := line.split()):
                continue
            try:
                label, _, weight = parts[0].partition(":")
                labels.append(float(label))
                weights.append(float(weight or 1))
                for part in parts[1:]:
                    column, _, value = part.partition(":")
                    columns.append(int(column))
                    values.append(float(value))
            except ValueError:
                raise UserError(
                    f"Line {number} '{line[:50]}...' of file '{path.name}' is not 'LIBSVM' "
                    "format. Please ensure the file is in 'LIBSVM' format."
                ) from None
            starts.append(len(columns))
    shape = (len(labels), max(columns, default=-1) + 1)
    features = sparse.csr_matrix((np.array(values, np.float32), columns, starts), shape)
    has_weights = any(weight != 1 for weight in weights)
    return Rows(
        features,
        np.array(labels, np.float32),
        np.array(weights, np.float32) if has_weights else None,
    )


def _read_parquet_rows(files: list[Path]) -> Rows:
    try:
        import pyarrow.parquet

        tables = [pyarrow.parquet.read_table(path) for path in files]
        arrays = [np.column_stack([c.to_numpy() for c in table.columns]) for table in tables]
        table = np.concatenate(arrays).astype(np.float32)
    except (ImportError, ValueError, OSError) as error:
        raise UserError(f"Failed to load parquet data with exception:\n{error}") from None
    return Rows(table[:, 1:], table[:, 0])
