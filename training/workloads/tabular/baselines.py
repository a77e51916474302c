"""What a model must beat: boosted trees, a logistic regression on its features, the base rate."""

import logging
from collections.abc import Callable, Mapping

import numpy as np
import torch
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from training.data.dataset import Dataset
from training.data.manifest import Samples
from training.workloads.tabular.boosted_trees import BoostedTrees
from training.workloads.tabular.held_out import held_out
from training.workloads.tabular.model import Encoder, inputs
from training.workloads.tabular.scores import columns
from trainyard.common.errors import TrainingError

log = logging.getLogger(__name__)

STRENGTHS = (0.001, 0.01, 0.1, 1.0, 10.0)  # C: the inverse of the L2 penalty
MAX_ITERATIONS = 1000

Logits = Callable[[Samples], np.ndarray]
"""Samples → their logits, float64 (n,)."""


class Regression:
    """Logistic regression on one-hot categories and normalised numbers.

    C is the one of STRENGTHS that predicts a held-out fifth best.
    """

    def __init__(self, encoder: Encoder, samples: Samples) -> None:
        self._encoder = encoder
        rows, labels = self.design(samples), samples["label"]
        self.strength = _best_strength(rows, samples)
        log.info("logistic regression: C = %g, of %s", self.strength, STRENGTHS)
        self._model = _fit(rows, labels, self.strength)

    def logits(self, samples: Samples) -> np.ndarray:
        return self._model.decision_function(self.design(samples))

    def design(self, samples: Samples) -> sparse.csr_array:
        """The design matrix, (n, one-hot ids + 2 × numbers)."""
        batch = {name: torch.from_numpy(array) for name, array in samples.items()}
        categories, numbers = inputs(batch)
        ids = self._encoder.ids(categories).numpy()
        starts = np.cumsum([0, *self._encoder.sizes])
        count, width = ids.shape
        one_hot = sparse.csr_array(
            (np.ones(ids.size), (ids + starts[:-1]).ravel(), np.arange(count + 1) * width),
            shape=(count, starts[-1]),
        )
        dense = self._encoder.numbers(numbers).double().numpy()
        return sparse.hstack((one_hot, dense), format="csr")


def fitted(encoder: Encoder, train: Dataset, limit: int) -> Mapping[str, Logits]:
    """Baseline → its logits, fitted on at most ``limit`` samples, spread evenly over train.

    Raises:
        TrainingError: those samples all have one label, or the regression does not converge.
    """
    count = min(limit, len(train))
    samples = train.read(np.arange(count) * len(train) // count)
    positives = int(samples["label"].sum())
    if not 0 < positives < count:
        raise TrainingError(
            f"the {count} training samples that the baselines may see all have the label "
            f"{int(positives > 0)}; raise evaluate.baseline_units, or check label_above"
        )
    base_rate = np.log(positives / (count - positives))
    return {
        "boosted_trees": BoostedTrees(encoder, samples).logits,
        "logistic_regression": Regression(encoder, samples).logits,
        "base_rate": lambda part: np.full(len(part["label"]), base_rate),
    }


def _best_strength(rows: sparse.csr_array, samples: Samples) -> float:
    labels, held = samples["label"], held_out(samples)
    if held is None:
        log.warning("%d rows are too few to choose C on: it is 1", len(labels))
        return 1.0

    def loss(strength: float) -> float:
        model = _fit(rows[~held], labels[~held], strength)
        found = columns(model.decision_function(rows[held]), labels[held])
        return float(found["log_loss.sum"].mean())

    return min(STRENGTHS, key=loss)


def _fit(rows: sparse.csr_array, labels: np.ndarray, strength: float) -> LogisticRegression:
    # With its default solver, lbfgs, it stops 1e-4 nats short of the optimum on the flights.
    model = LogisticRegression(C=strength, solver="newton-cg", max_iter=MAX_ITERATIONS)
    model.fit(rows, labels)
    if model.n_iter_.max() >= MAX_ITERATIONS:
        # Half a baseline is easy to beat: the gate must not see it.
        raise TrainingError(
            f"the logistic regression (C = {strength:g}) has not converged after {MAX_ITERATIONS} "
            "iterations; look for numbers that are far from the rest, or lower workload.config.clip"
        )
    return model
