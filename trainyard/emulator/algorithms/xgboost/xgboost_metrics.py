"""Metrics that the container computes itself, because XGBoost does not have them.

Definitions are scikit-learn's (macro: the mean over the classes, without weights).
"""

from collections.abc import Callable
from typing import Any

import numpy as np

Values = np.ndarray


def _ratio(part: Values, total: Values) -> Values:
    return np.divide(part, total, out=np.zeros(len(part)), where=total > 0)


def _counts(truth: Values, predictions: Values) -> tuple[Values, Values, Values]:
    """Return for each class: true positives, number predicted, number present."""
    classes = np.union1d(truth, predictions)
    right = [((truth == c) & (predictions == c)).sum() for c in classes]
    predicted_counts, true_counts = (
        [(side == c).sum() for c in classes] for side in (predictions, truth)
    )
    return np.array(right), np.array(predicted_counts), np.array(true_counts)


_RATIOS: dict[str, Callable[[Values, Values, Values], Values]] = {
    "f1": lambda right, predicted_counts, true_counts: _ratio(
        2.0 * right, predicted_counts + true_counts
    ),
    "precision": lambda right, predicted_counts, true_counts: _ratio(right, predicted_counts),
    "recall": lambda right, predicted_counts, true_counts: _ratio(right, true_counts),
}


def _accuracy(truth: Values, predictions: Values) -> float:
    return float((truth == predictions).mean())


def _balanced_accuracy(truth: Values, predictions: Values) -> float:
    return float(np.mean([(predictions[truth == c] == c).mean() for c in np.unique(truth)]))


def _macro(name: str) -> Callable[[Values, Values], float]:
    return lambda truth, predictions: float(_RATIOS[name](*_counts(truth, predictions)).mean())


def _binary(name: str) -> Callable[[Values, Values], float]:
    """Return the score of class 1 alone; like scikit-learn, it refuses more than two classes."""

    def score(truth: Values, predictions: Values) -> float:
        classes = np.union1d(truth, predictions)
        if not set(classes) <= {0, 1}:
            raise ValueError("Target is multiclass but average='binary'")
        return float(_RATIOS[name](*_counts(truth, predictions))[-1]) if 1 in classes else 0.0

    return score


def _r2(truth: Values, predictions: Values) -> float:
    spread = float(((truth - truth.mean()) ** 2).sum())
    return 1 - float(((truth - predictions) ** 2).sum()) / spread if spread else 0.0


_OF_CLASSES: dict[str, Callable[[Values, Values], float]] = {
    "accuracy": _accuracy,
    "balanced_accuracy": _balanced_accuracy,
    "f1": _macro("f1"),
    "f1_binary": _binary("f1"),
    "precision": _binary("precision"),
    "precision_micro": _accuracy,
    "recall": _binary("recall"),
    "recall_micro": _accuracy,
    **{f"{name}_macro": _macro(name) for name in _RATIOS},
}
_OF_NUMBERS: dict[str, Callable[[Values, Values], float]] = {
    "mse": lambda truth, predictions: float(((truth - predictions) ** 2).mean()),
    "r2": _r2,
}
CUSTOM = _OF_CLASSES.keys() | _OF_NUMBERS.keys()


def evaluator(names: list[str], objective: str) -> Callable[[Values, Any], list]:
    """Return XGBoost's ``custom_metric``: predictions and a DMatrix to (name, value) pairs."""

    def evaluate(predictions: Values, matrix: Any) -> list[tuple[str, float]]:
        truth = matrix.get_label()
        classes = _as_classes(predictions, objective)
        return [
            (name, _OF_CLASSES[name](truth, classes))
            if name in _OF_CLASSES
            else (name, _OF_NUMBERS[name](truth, predictions))
            for name in names
        ]

    return evaluate


def _as_classes(predictions: Values, objective: str) -> Values:
    """Return the predicted classes; XGBoost gives what ``predict`` gives: classes, probabilities or
    a raw score.
    """
    if predictions.ndim > 1:
        return predictions.argmax(axis=1)
    if objective in ("multi:softmax", "binary:hinge"):
        return predictions
    return (predictions > (0 if objective == "binary:logitraw" else 0.5)).astype(int)
