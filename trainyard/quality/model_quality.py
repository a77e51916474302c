"""Compare a model's predictions with the truth: metrics, suggested constraints, violations.

Definitions are scikit-learn's. AWS's analyser has more: curves, and the metrics of the best
constant classifier. Whether it lets a metric's standard deviation excuse a violation is not
documented; here it does not.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from trainyard.quality.tables import Cells, DataError, Table, numbers

LEAST, PARTS, SHARE = 200, 5, 0.8
"""Rows that a standard deviation needs; it is that over ``PARTS`` subsamples of ``SHARE``."""
GREATER, LESS = "GreaterThanThreshold", "LessThanThreshold"
KINDS = {
    "Regression": "regression",
    "BinaryClassification": "binary_classification",
    "MulticlassClassification": "multiclass_classification",
}
_WORSE_WHEN_GREATER = ("mae", "mse", "rmse", "false_positive_rate", "false_negative_rate")
Measures = dict[str, float]
Measure = Callable[[np.ndarray], Measures]
"""Return the metrics over the rows of these indices."""


def describe(table: Table, problem: str, columns: dict[str, str]) -> dict[str, Any]:
    """Return statistics.json of model quality. ``columns``: the ``*_attribute`` variables.

    Raises :class:`DataError`.
    """
    if problem not in KINDS:
        raise DataError(f"problem_type {problem!r} must be one of {', '.join(KINDS)}")
    truth = table.column(_get_column(columns, "ground_truth_attribute"))
    if problem == "Regression":
        metrics = _regression(truth, table.column(_get_column(columns, "inference_attribute")))
        matrix = None
    else:
        metrics, matrix = _classification(table, truth, problem, columns)
    report = _with_deviations(metrics, table.rows)
    if matrix is not None:
        report = {"confusion_matrix": matrix, **report}
    return {
        "version": 0.0,
        "dataset": {"item_count": table.rows},
        f"{KINDS[problem]}_metrics": report,
    }


def suggest(statistics: dict[str, Any]) -> dict[str, Any]:
    """Return constraints.json: no metric may become worse than it is."""
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


def violations(statistics: dict[str, Any], constraints: dict[str, Any]) -> list[dict[str, str]]:
    """Return the metrics on the wrong side of their thresholds."""
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
        if math.isclose(value, bound, rel_tol=1e-9):  # the same sum in another order
            continue
        if value > bound if operator == GREATER else value < bound:
            text = f"Metric {name} with {value} +/- {metrics[name]['standard_deviation']} was "
            entry = {"constraint_check_type": operator, "metric_name": name}
            results.append({**entry, "description": f"{text}{operator} '{bound}'"})
    return results


def _get_column(columns: dict[str, str], name: str) -> str:
    if not columns.get(name):
        raise DataError(f"{name} is not set: it names the column")
    return columns[name]


def _with_deviations(measure: Measure, rows: int) -> dict[str, Any]:
    values = measure(np.arange(rows))
    spread: dict[str, Any] = dict.fromkeys(values, "NaN")
    if rows >= LEAST:
        random = np.random.default_rng(0)
        parts = [
            measure(random.choice(rows, int(rows * SHARE), replace=False)) for _ in range(PARTS)
        ]
        spread = {name: float(np.std([part[name] for part in parts])) for name in values}
    return {n: {"value": value, "standard_deviation": spread[n]} for n, value in values.items()}


def _regression(truth: Cells, inferences: Cells) -> Measure:
    true, predictions = _all_numbers(truth, "ground truth"), _all_numbers(inferences, "inference")

    def measure(rows: np.ndarray) -> Measures:
        error = true[rows] - predictions[rows]
        mse, spread = float(np.mean(error**2)), float(np.var(true[rows]))
        mae = float(np.abs(error).mean())
        r2 = 1 - mse / spread if spread else 0.0
        return {"mae": mae, "mse": mse, "rmse": float(np.sqrt(mse)), "r2": r2}

    return measure


def _all_numbers(cells: Cells, noun: str) -> np.ndarray:
    values = numbers(cells)
    if np.isnan(values).any():
        row = int(np.flatnonzero(np.isnan(values))[0])
        raise DataError(f"the {noun} of row {row + 1} is {cells[row]!r}: a number is expected")
    return values


def _classification(
    table: Table, truth: Cells, problem: str, columns: dict[str, str]
) -> tuple[Measure, dict[str, dict[str, int]]]:
    binary = problem == "BinaryClassification"
    chance = columns.get("probability_attribute")
    scores = _all_numbers(table.column(chance), "probability") if chance and binary else None
    true = np.array([_label(cell) for cell in truth])
    if attribute := columns.get("inference_attribute"):
        predictions = np.array([_label(cell) for cell in table.column(attribute)])
    elif scores is not None:
        threshold = float(columns.get("probability_threshold_attribute") or 0.5)
        predictions = np.where(scores > threshold, "1", "0")
    else:
        raise DataError("inference_attribute or, for two classes, probability_attribute is needed")
    classes = sorted({*true, *predictions})
    if binary and not set(classes) <= {"0", "1"}:
        raise DataError(f"BinaryClassification has classes 0 and 1; found are {classes}")
    matrix = {
        label: {other: int(((true == label) & (predictions == other)).sum()) for other in classes}
        for label in classes
    }
    if binary:
        return _binary(true == "1", predictions == "1", scores), matrix
    return _several(true, predictions, classes), matrix


def _label(cell: str | None) -> str:
    """Return the class of a cell; ``1``, ``1.0`` and ``true`` are one class."""
    text = (cell or "").strip()
    words = {"true": "1", "false": "0"}
    value = float(text) if text.replace(".", "", 1).lstrip("-").isdecimal() else None
    return words.get(text.lower(), text) if value is None else f"{value:g}"


def _ratio(part: float, total: float) -> float:
    return float(part / total) if total else 0.0


def _f(beta: float, precision: float, recall: float) -> float:
    return _ratio((1 + beta**2) * precision * recall, beta**2 * precision + recall)


def _binary(true: np.ndarray, predictions: np.ndarray, scores: np.ndarray | None) -> Measure:
    def measure(rows: np.ndarray) -> Measures:
        t, s = true[rows], predictions[rows]
        recall, precision = _ratio((t & s).sum(), t.sum()), _ratio((t & s).sum(), s.sum())
        negative = _ratio((~t & ~s).sum(), (~t).sum())
        metrics = {
            "recall": recall,
            "precision": precision,
            "accuracy": float((t == s).mean()),
            "true_positive_rate": recall,
            "true_negative_rate": negative,
            "false_positive_rate": 1 - negative if (~t).any() else 0.0,
            "false_negative_rate": 1 - recall if t.any() else 0.0,
            "f0_5": _f(0.5, precision, recall),
            "f1": _f(1, precision, recall),
            "f2": _f(2, precision, recall),
        }
        return metrics if scores is None else metrics | {"auc": _auc(t, scores[rows])}

    return measure


def _auc(true: np.ndarray, scores: np.ndarray) -> float:
    """Return the share of pairs in their right order, a tie counting half: Mann and Whitney's U."""
    values, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    ones, zeros = int(true.sum()), int((~true).sum())
    return _ratio(float(ranks[true].sum()) - ones * (ones + 1) / 2, ones * zeros)


def _several(true: np.ndarray, predictions: np.ndarray, classes: list[str]) -> Measure:
    def measure(rows: np.ndarray) -> Measures:
        t, s = true[rows], predictions[rows]
        total: Measures = dict.fromkeys(("recall", "precision", "f0_5", "f1", "f2"), 0.0)
        for name in classes:
            hit, positives = float(((t == name) & (s == name)).sum()), float((t == name).sum())
            recall, precision = _ratio(hit, positives), _ratio(hit, float((s == name).sum()))
            scores = [recall, precision, *(_f(beta, precision, recall) for beta in (0.5, 1, 2))]
            for key, score in zip(total, scores, strict=True):
                total[key] += score * positives / len(t)
        weighted_metrics = {f"weighted_{key}": value for key, value in total.items()}
        return {"accuracy": float((t == s).mean()), **weighted_metrics}

    return measure
