"""What a model must beat: a logistic regression on the same features, and the base rate."""

import logging
from collections.abc import Callable, Iterator

import numpy as np
import torch
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from training.data.dataset import Dataset
from training.data.manifest import Samples
from training.scores import Block
from training.workloads.tabular.model import Encoder, inputs
from training.workloads.tabular.scores import columns, values
from trainyard.common.errors import TrainingError

log = logging.getLogger(__name__)

STRENGTHS = (0.001, 0.01, 0.1, 1.0, 10.0)  # C: the inverse of the L2 penalty
BLOCKS, HELD_OUT_EVERY = 100, 5
MAX_ITERATIONS = 1000
SCORED = 65536  # samples at a time


class Regression:
    """Logistic regression on one-hot categories and normalised numbers.

    C is the one of STRENGTHS that predicts a held-out fifth best: of the groups, if the rows have
    any, else of BLOCKS blocks of neighbouring rows, since neighbours are often alike.
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


def evaluate(
    encoder: Encoder, train: Dataset, test: Dataset, limit: int
) -> dict[str, dict[str, float]]:
    """Baseline → metric → value, fitted on at most ``limit`` samples, spread evenly over train.

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
    regression = Regression(encoder, samples)
    base_rate = np.log(positives / (count - positives))
    predictions = {
        "logistic_regression": regression.logits,
        "base_rate": lambda part: np.full(len(part["label"]), base_rate),
    }
    return {name: values(_blocks(test, logits)) for name, logits in predictions.items()}


def _blocks(test: Dataset, logits: Callable[[Samples], np.ndarray]) -> Iterator[Block]:
    """Values ask for no groups: all rows are one here."""
    for passage in test.stream(SCORED):
        yield _block(logits(passage.samples), passage.samples["label"])


def _block(logits: np.ndarray, labels: np.ndarray) -> Block:
    return {"group": np.zeros(len(labels), np.int64), **columns(logits, labels)}


def _best_strength(rows: sparse.csr_array, samples: Samples) -> float:
    labels = samples["label"]
    block = np.arange(len(labels)) * BLOCKS // len(labels)
    if "group" in samples:
        block = np.unique(samples["group"], return_inverse=True)[1]
    held_out = block % HELD_OUT_EVERY == HELD_OUT_EVERY - 1
    kept = ~held_out
    if not (_has_both(labels[kept]) and _has_both(labels[held_out])):
        log.warning("%d rows are too few to choose C on: it is 1", len(labels))
        return 1.0

    def loss(strength: float) -> float:
        model = _fit(rows[kept], labels[kept], strength)
        found = columns(model.decision_function(rows[held_out]), labels[held_out])
        return float(found["log_loss.sum"].mean())

    return min(STRENGTHS, key=loss)


def _has_both(labels: np.ndarray) -> bool:
    return len(np.unique(labels)) == 2


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
