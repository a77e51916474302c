"""Metrics that AWS's container computes itself, because XGBoost does not have them.

They are scikit-learn's (macro: the mean over the classes, without weights). The command
of ``algorithms.build_module_command`` hides scikit-learn from XGBoost, so it is imported here, and
only if one of these metrics is requested.
"""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from trainyard.emulator.algorithms.xgboost.hyperparameters import UserError

_AVERAGES = {"": "binary", "_macro": "macro", "_micro": "micro"}
_SCORES = {  # name → function of sklearn.metrics, and its options
    "accuracy": ("accuracy_score", {}),
    "balanced_accuracy": ("balanced_accuracy_score", {}),
    "f1": ("f1_score", {"average": "macro", "zero_division": 0}),
    "f1_binary": ("f1_score", {"zero_division": 0}),
    "f1_macro": ("f1_score", {"average": "macro", "zero_division": 0}),
    **{
        f"{name}{end}": (f"{name}_score", {"average": average, "zero_division": 0})
        for name in ("precision", "recall")
        for end, average in _AVERAGES.items()
    },
    "mse": ("mean_squared_error", {}),
    "r2": ("r2_score", {}),
}
_OF_NUMBERS = ("mse", "r2")
CUSTOM = _SCORES.keys()


def make_evaluator(names: list[str], objective: str) -> Callable[[np.ndarray, Any], list]:
    """Return the function for XGBoost's ``custom_metric``. It returns (name, value) pairs.

    Raises UserError if the job's interpreter lacks scikit-learn.
    """
    sys.modules.pop("sklearn", None)
    try:
        from sklearn import metrics
    except ImportError:
        raise UserError(f"metric {names[0]} needs scikit-learn: pip install scikit-learn") from None

    def evaluate(predictions: np.ndarray, matrix: Any) -> list[tuple[str, float]]:
        """Return (name, value) of each metric; XGBoost calls this after each round."""
        truth = matrix.get_label()
        classes = _convert_to_classes(predictions, objective)
        scores = []
        for name in names:
            function, options = _SCORES[name]
            values = predictions if name in _OF_NUMBERS else classes
            scores.append((name, float(getattr(metrics, function)(truth, values, **options))))
        return scores

    return evaluate


def _convert_to_classes(predictions: np.ndarray, objective: str) -> np.ndarray:
    """Return the predicted class of each row. ``predictions`` are classes, probabilities or raw
    scores, depending on ``objective``.
    """
    if predictions.ndim > 1:
        return predictions.argmax(axis=1)
    if objective in ("multi:softmax", "binary:hinge"):
        return predictions
    return (predictions > (0 if objective == "binary:logitraw" else 0.5)).astype(int)
