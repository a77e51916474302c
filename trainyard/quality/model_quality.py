"""Compare a model's predictions with the truth: metrics, suggested constraints, violations.

The metrics are defined as in scikit-learn. AWS's analyser has more: curves, and the metrics of the
best constant classifier. It is not documented whether AWS ignores a violation that is within the
metric's standard deviation; here it is not ignored.
"""

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

# Read data sets in CSV, JSON and JSON Lines as columns of text.

Cells = list[str | None]
"""Cells of a column; None for a missing value."""


class DataError(Exception):
    """The data or the analysis's configuration is invalid; the message says where."""


@dataclass(frozen=True, slots=True)
class Table:
    """A data set: a mapping of a column's name to its cells; each column has ``rows`` cells."""

    columns: dict[str, Cells]
    rows: int

    def find_column(self, attribute: str) -> Cells:
        """Return a column by its name (``$.name`` is the same), or by its position from 0.

        Raises:
            DataError: there is no such column.
        """
        name = attribute.removeprefix("$.")
        if name in self.columns:
            return self.columns[name]
        if name.isdecimal() and int(name) < len(self.columns):
            return list(self.columns.values())[int(name)]
        column_names = ", ".join(self.columns)
        raise DataError(f"there is no column {attribute!r}; the data set has {column_names}")


def read_tables(folder: Path, form: dict[str, Any]) -> Table:
    """Read all files in ``folder`` and its subfolders, sorted by path, into one table.

    Hidden files and those whose name begins with ``_`` are skipped.

    Args:
        folder: folder with the data, or a single file.
        form: Model Monitor's ``dataset_format``.

    Raises:
        DataError: the format is neither csv nor json, a file is not in it, or there are no rows.
    """
    if folder.is_file():
        files = [folder]
    else:
        paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
        files = [path for path in paths if not path.name.startswith((".", "_"))]
    if "csv" in form:
        table = _read_csv_files(files, bool((form["csv"] or {}).get("header", True)))
    elif "json" in form:
        lines = bool((form["json"] or {}).get("lines", True))
        table = build_table(record for path in files for record in _read_records(path, lines))
    else:
        raise DataError(f"dataset_format {json.dumps(form)}: only csv and json are supported")
    if not table.rows:
        raise DataError(f"{folder} contains no rows")
    return table


def _read_csv_files(files: list[Path], header: bool) -> Table:
    """Read CSV files; without a header, the columns are ``_c0``, ``_c1``, … as AWS names them."""
    names: list[str] = []
    rows: list[Cells] = []
    for path in files:
        try:
            lines = [
                line for line in csv.reader(io.StringIO(_read_utf8_text(path), newline="")) if line
            ]
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


def build_table(records: Iterable[Mapping[str, Any]]) -> Table:
    """Return records as a table; the members of nested objects become columns such as ``a.b``."""
    flat = [dict(_flatten_record(record)) for record in records]
    names = dict.fromkeys(name for record in flat for name in record)
    return Table({name: [record.get(name) for record in flat] for name in names}, len(flat))


def _read_records(path: Path, lines: bool) -> Iterator[dict[str, Any]]:
    """Iterate over the records in a file of JSON Lines (``lines``), or of one JSON text."""
    # Not splitlines: JSON strings may contain U+2028, which splitlines takes for a line break.
    texts = _read_utf8_text(path).split("\n") if lines else [_read_utf8_text(path)]
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


def _read_utf8_text(path: Path) -> str:
    try:
        # A byte order mark would become a part of the first column's name.
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path.name} is not UTF-8: {error}") from None


def _flatten_record(
    record: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, str | None]]:
    """Iterate over (column, cell) of a record; names of nested members are joined by dots."""
    for name, value in record.items():
        if isinstance(value, dict):
            yield from _flatten_record(value, f"{prefix}{name}.")
        elif value is None or isinstance(value, str):
            yield f"{prefix}{name}", value or None
        else:
            yield f"{prefix}{name}", json.dumps(value, default=str)


def parse_numbers(cells: Cells) -> np.ndarray:
    """Return the cells as float64; NaN if a cell is empty or not a number."""
    return np.array([_parse_number(cell) for cell in cells], float)


def _parse_number(cell: str | None) -> float:
    try:
        return float(cell) if cell is not None else float("nan")
    except ValueError:
        return float("nan")


def is_integer(cell: str) -> bool:
    """Return whether a cell is written as an integer."""
    digits = cell.strip().lstrip("+-")
    return digits.isdecimal() and digits.isascii()


LEAST, PARTS, SHARE = 200, 5, 0.8
"""A metric's standard deviation needs at least ``LEAST`` rows. It is that of the metric over
``PARTS`` subsamples, each with a ``SHARE`` of the rows."""
GREATER, LESS = "GreaterThanThreshold", "LessThanThreshold"
KINDS = {
    "Regression": "regression",
    "BinaryClassification": "binary_classification",
    "MulticlassClassification": "multiclass_classification",
}
_WORSE_WHEN_GREATER = ("mae", "mse", "rmse", "false_positive_rate", "false_negative_rate")
Measures = dict[str, float]
Measure = Callable[[np.ndarray], Measures]
"""Function that returns the metrics over the rows with the given indices."""


def describe_predictions(table: Table, problem: str, columns: dict[str, str]) -> dict[str, Any]:
    """Return the content of statistics.json for a model's predictions.

    Args:
        table: the data set with predictions and truth.
        problem: one of ``KINDS``.
        columns: the ``*_attribute`` variables, which name columns of the table.

    Raises:
        DataError: ``problem`` is unknown, or a column is missing or has an invalid value.
    """
    if problem not in KINDS:
        raise DataError(f"problem_type {problem!r} must be one of {', '.join(KINDS)}")
    truth = table.find_column(_require_column_name(columns, "ground_truth_attribute"))
    if problem == "Regression":
        metrics = _make_regression_measure(
            truth, table.find_column(_require_column_name(columns, "inference_attribute"))
        )
        matrix = None
    else:
        metrics, matrix = _prepare_classification(table, truth, problem, columns)
    report = _compute_metrics(metrics, table.rows)
    if matrix is not None:
        report = {"confusion_matrix": matrix, **report}
    return {
        "version": 0.0,
        "dataset": {"item_count": table.rows},
        f"{KINDS[problem]}_metrics": report,
    }


def suggest_metric_constraints(statistics: dict[str, Any]) -> dict[str, Any]:
    """Return a constraints.json in which no metric may become worse than in ``statistics``."""
    [(key, metrics)] = [(k, v) for k, v in statistics.items() if k.endswith("_metrics")]
    constraints = {
        name: {
            "threshold": entry["value"],
            "comparison_operator": GREATER if name in _WORSE_WHEN_GREATER else LESS,
        }
        for name, entry in metrics.items()
        if name != "confusion_matrix"
    }
    return {"version": 0.0, key.replace("_metrics", "_constraints"): constraints}


def find_violations(
    statistics: dict[str, Any], constraints: dict[str, Any]
) -> list[dict[str, str]]:
    """Return a violation for each metric that is on the wrong side of its threshold."""
    metrics = next(v for k, v in statistics.items() if k.endswith("_metrics"))
    limits: dict[str, Any] = next(
        (v for k, v in constraints.items() if k.endswith("_constraints")), {}
    )
    results = []
    for name, limit in limits.items():
        if name not in metrics:
            continue
        value, bound = metrics[name]["value"], limit["threshold"]
        operator = limit["comparison_operator"]
        # Sums of the same numbers in another order differ by rounding: that is no violation.
        if math.isclose(value, bound, rel_tol=1e-9):
            continue
        if value > bound if operator == GREATER else value < bound:
            text = f"Metric {name} with {value} +/- {metrics[name]['standard_deviation']} was "
            entry = {"constraint_check_type": operator, "metric_name": name}
            results.append({**entry, "description": f"{text}{operator} '{bound}'"})
    return results


def _require_column_name(columns: dict[str, str], name: str) -> str:
    if not columns.get(name):
        raise DataError(f"{name} is not set: it must name a column")
    return columns[name]


def _compute_metrics(measure: Measure, rows: int) -> dict[str, Any]:
    """Return each metric's value and standard deviation, "NaN" if there are too few rows."""
    values = measure(np.arange(rows))
    spread: dict[str, Any] = dict.fromkeys(values, "NaN")
    if rows >= LEAST:
        # The seed is fixed so that equal data give equal statistics.
        random = np.random.default_rng(0)
        parts = [
            measure(random.choice(rows, int(rows * SHARE), replace=False)) for _ in range(PARTS)
        ]
        spread = {name: float(np.std([part[name] for part in parts])) for name in values}
    return {n: {"value": value, "standard_deviation": spread[n]} for n, value in values.items()}


def _make_regression_measure(truth: Cells, inferences: Cells) -> Measure:
    """Return a function that computes the metrics of a regression over given rows."""
    true, predictions = (
        _require_numbers(truth, "ground truth"),
        _require_numbers(inferences, "inference"),
    )

    def measure(rows: np.ndarray) -> Measures:
        error = true[rows] - predictions[rows]
        mse, spread = float(np.mean(error**2)), float(np.var(true[rows]))
        mae = float(np.abs(error).mean())
        r2 = 1 - mse / spread if spread else 0.0
        return {"mae": mae, "mse": mse, "rmse": float(np.sqrt(mse)), "r2": r2}

    return measure


def _require_numbers(cells: Cells, noun: str) -> np.ndarray:
    """Return the cells as float64; raise a DataError about ``noun`` if one is not a number."""
    values = parse_numbers(cells)
    if np.isnan(values).any():
        row = int(np.flatnonzero(np.isnan(values))[0])
        raise DataError(f"the {noun} of row {row + 1} is {cells[row]!r}: a number is expected")
    return values


def _prepare_classification(
    table: Table, truth: Cells, problem: str, columns: dict[str, str]
) -> tuple[Measure, dict[str, dict[str, int]]]:
    """Return (function that computes a classifier's metrics over given rows, confusion matrix as
    {true class: {predicted class: number of rows}}).
    """
    binary = problem == "BinaryClassification"
    chance = columns.get("probability_attribute")
    scores = (
        _require_numbers(table.find_column(chance), "probability") if chance and binary else None
    )
    true = np.array([_normalize_label(cell) for cell in truth])
    if attribute := columns.get("inference_attribute"):
        predictions = np.array([_normalize_label(cell) for cell in table.find_column(attribute)])
    elif scores is not None:
        threshold = float(columns.get("probability_threshold_attribute") or 0.5)
        predictions = np.where(scores > threshold, "1", "0")
    else:
        raise DataError("inference_attribute or, for two classes, probability_attribute is needed")
    classes = sorted({*true, *predictions})
    if binary and not set(classes) <= {"0", "1"}:
        raise DataError(f"BinaryClassification needs the classes 0 and 1; found {classes}")
    matrix = {
        label: {other: int(((true == label) & (predictions == other)).sum()) for other in classes}
        for label in classes
    }
    if binary:
        return _make_binary_measure(true == "1", predictions == "1", scores), matrix
    return _make_multiclass_measure(true, predictions, classes), matrix


def _normalize_label(cell: str | None) -> str:
    """Return the class in a cell as text; ``1``, ``1.0`` and ``true`` are the same class."""
    text = (cell or "").strip()
    words = {"true": "1", "false": "0"}
    value = float(text) if text.replace(".", "", 1).lstrip("-").isdecimal() else None
    return words.get(text.lower(), text) if value is None else f"{value:g}"


def _divide_or_zero(part: float, total: float) -> float:
    return float(part / total) if total else 0.0


def _compute_f_beta(beta: float, precision: float, recall: float) -> float:
    """Return the F-beta score; 0 if precision and recall are 0."""
    return _divide_or_zero((1 + beta**2) * precision * recall, beta**2 * precision + recall)


def _make_binary_measure(
    true: np.ndarray, predictions: np.ndarray, scores: np.ndarray | None
) -> Measure:
    """Return a function that computes the metrics of a binary classifier over given rows."""

    def measure(rows: np.ndarray) -> Measures:
        t, s = true[rows], predictions[rows]
        recall, precision = (
            _divide_or_zero((t & s).sum(), t.sum()),
            _divide_or_zero((t & s).sum(), s.sum()),
        )
        negative = _divide_or_zero((~t & ~s).sum(), (~t).sum())
        metrics = {
            "recall": recall,
            "precision": precision,
            "accuracy": float((t == s).mean()),
            "true_positive_rate": recall,
            "true_negative_rate": negative,
            "false_positive_rate": 1 - negative if (~t).any() else 0.0,
            "false_negative_rate": 1 - recall if t.any() else 0.0,
            "f0_5": _compute_f_beta(0.5, precision, recall),
            "f1": _compute_f_beta(1, precision, recall),
            "f2": _compute_f_beta(2, precision, recall),
        }
        return metrics if scores is None else metrics | {"auc": _compute_roc_auc(t, scores[rows])}

    return measure


def _compute_roc_auc(true: np.ndarray, scores: np.ndarray) -> float:
    """Return the area under the ROC curve, computed from the Mann-Whitney U statistic.

    It is the share of pairs of a positive and a negative in which the positive has the higher
    score; a tie counts half.
    """
    values, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    ones, zeros = int(true.sum()), int((~true).sum())
    return _divide_or_zero(float(ranks[true].sum()) - ones * (ones + 1) / 2, ones * zeros)


def _make_multiclass_measure(
    true: np.ndarray, predictions: np.ndarray, classes: list[str]
) -> Measure:
    """Return a function that computes the metrics of a multiclass classifier over given rows:
    averages over the classes, weighted by their number of rows.
    """

    def measure(rows: np.ndarray) -> Measures:
        t, s = true[rows], predictions[rows]
        total: Measures = dict.fromkeys(("recall", "precision", "f0_5", "f1", "f2"), 0.0)
        for name in classes:
            hit, positives = float(((t == name) & (s == name)).sum()), float((t == name).sum())
            recall, precision = (
                _divide_or_zero(hit, positives),
                _divide_or_zero(hit, float((s == name).sum())),
            )
            scores = [
                recall,
                precision,
                *(_compute_f_beta(beta, precision, recall) for beta in (0.5, 1, 2)),
            ]
            for key, score in zip(total, scores, strict=True):
                total[key] += score * positives / len(t)
        weighted_metrics = {f"weighted_{key}": value for key, value in total.items()}
        return {"accuracy": float((t == s).mean()), **weighted_metrics}

    return measure
