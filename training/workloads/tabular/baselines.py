"""Baselines that a model must beat: boosted trees, a logistic regression, the base rate."""

import logging
from collections.abc import Callable, Mapping

import numpy as np
import torch
from scipy import sparse
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from training.data.dataset import Dataset
from training.data.manifest import Samples
from training.workloads.tabular.model import Encoder, select_inputs
from training.workloads.tabular.scores import build_columns
from trainyard.common.errors import TrainingError

# The trees are scikit-learn's, not XGBoost's. On the flights data they predict better in half the
# CPU time, though with more memory. They accept categories and missing values directly, and the job
# needs no further package for them.


log = logging.getLogger(__name__)

LEARNING_RATE = 0.05
"""Learning rate: half of scikit-learn's default. On the flights data, 0.1 and 0.03 change the log
loss by less than 0.0005."""
MOST_ROUNDS = 1000
PATIENCE = 10
"""Fitting stops after this many rounds without a lower held-out loss."""
USUAL_ROUNDS = 100
"""Rounds if there are too few rows to choose the number: scikit-learn's default."""
CODES = 255
"""Maximum number of values of a category, which is scikit-learn's limit. If there are more, the
rarest values share the last code."""


class Columns:
    """Turns stored samples into the trees' inputs: codes of categories, then numbers unchanged.

    A category's codes count from 0, and the most common ids of ``samples`` get the lowest codes.
    """

    def __init__(self, encoder: Encoder, samples: Samples) -> None:
        self._encoder = encoder
        ids = self._encode_ids(samples)
        sizes = enumerate(encoder.sizes)
        self._codes = [_assign_codes(ids[:, column], size) for column, size in sizes]
        self.categories = list(range(len(self._codes)))
        """Indices of the columns that are categories."""

    def encode_samples(self, samples: Samples) -> np.ndarray:
        """Return float64 (n, columns), with NaN for a missing number."""
        ids = self._encode_ids(samples)
        _, numbers = select_inputs(
            {name: torch.from_numpy(array) for name, array in samples.items()}
        )
        rows = np.empty((len(ids), len(self._codes) + numbers.shape[1]))
        for column, codes in enumerate(self._codes):
            rows[:, column] = codes[ids[:, column]]
        rows[:, len(self._codes) :] = numbers.numpy()
        return rows

    def _encode_ids(self, samples: Samples) -> np.ndarray:
        batch = {name: torch.from_numpy(array) for name, array in samples.items()}
        return self._encoder.encode_hashes(select_inputs(batch)[0]).numpy()


class BoostedTrees:
    """Histogram-based boosted trees on ``Columns``.

    The number of rounds that predicts a held-out fifth of the rows best is used to fit all rows.
    Fitting takes 9 bytes per value (1 of them for its bin), and at most as many threads as torch
    uses. The same samples give the same trees with any number of threads.
    """

    def __init__(self, encoder: Encoder, samples: Samples) -> None:
        self.columns = Columns(encoder, samples)
        rows, labels = self.columns.encode_samples(samples), samples["label"]
        with threadpool_limits(torch.get_num_threads(), user_api="openmp"):
            self.rounds = self._find_best_rounds(rows, samples)
            self._model = self._create_model(self.rounds).fit(rows, labels)
        log.info("boosted trees: %d rounds, of at most %d", self.rounds, MOST_ROUNDS)

    def compute_logits(self, samples: Samples) -> np.ndarray:
        with threadpool_limits(torch.get_num_threads(), user_api="openmp"):
            return self._model.decision_function(self.columns.encode_samples(samples))

    def _create_model(
        self, rounds: int, patience: int | None = None
    ) -> HistGradientBoostingClassifier:
        return HistGradientBoostingClassifier(
            learning_rate=LEARNING_RATE,
            max_iter=rounds,
            categorical_features=self.columns.categories or None,
            early_stopping=patience is not None,
            n_iter_no_change=patience or PATIENCE,
            random_state=0,  # seeds the choice of rows to find bins, if there are over 200,000
        )

    def _find_best_rounds(self, rows: np.ndarray, samples: Samples) -> int:
        """Return the number of rounds with the lowest loss on the held-out rows."""
        held_mask, labels = select_held_out(samples), samples["label"]
        if held_mask is None:
            log.warning(
                "%d rows are too few to choose the number of rounds; it is set to %d",
                len(labels),
                USUAL_ROUNDS,
            )
            return USUAL_ROUNDS
        model = self._create_model(MOST_ROUNDS, PATIENCE)
        model.fit(
            rows[~held_mask], labels[~held_mask], X_val=rows[held_mask], y_val=labels[held_mask]
        )
        # The first score is that of no rounds, so the index is the number of rounds.
        return max(1, int(np.argmax(model.validation_score_)))


def _assign_codes(ids: np.ndarray, size: int) -> np.ndarray:
    """Return the code of each id, below CODES, the most common ids first; float64 (size,)."""
    order = np.argsort(-np.bincount(ids, minlength=size), kind="stable")
    codes = np.empty(size)
    codes[order] = np.minimum(np.arange(size), CODES - 1)
    return codes


C_VALUES = (0.001, 0.01, 0.1, 1.0, 10.0)  # C is the inverse of the L2 penalty
MAX_ITERATIONS = 1000

Logits = Callable[[Samples], np.ndarray]
"""Function from samples to their logits, float64 (n,)."""


class Regression:
    """Logistic regression on one-hot categories and normalised numbers.

    C is the value in C_VALUES that predicts a held-out fifth of the rows best.
    """

    def __init__(self, encoder: Encoder, samples: Samples) -> None:
        self._encoder = encoder
        rows, labels = self.build_design(samples), samples["label"]
        self.c = _find_best_c(rows, samples)
        log.info("logistic regression: C = %g, of %s", self.c, C_VALUES)
        self._model = _fit_logistic_regression(rows, labels, self.c)

    def compute_logits(self, samples: Samples) -> np.ndarray:
        return self._model.decision_function(self.build_design(samples))

    def build_design(self, samples: Samples) -> sparse.csr_array:
        """Return the design matrix, (n, one-hot ids + 2 × numbers)."""
        batch = {name: torch.from_numpy(array) for name, array in samples.items()}
        categories, numbers = select_inputs(batch)
        ids = self._encoder.encode_hashes(categories).numpy()
        starts = np.cumsum([0, *self._encoder.sizes])
        count, width = ids.shape
        one_hot = sparse.csr_array(
            (np.ones(ids.size), (ids + starts[:-1]).ravel(), np.arange(count + 1) * width),
            shape=(count, starts[-1]),
        )
        dense = self._encoder.normalize_numbers(numbers).double().numpy()
        return sparse.hstack((one_hot, dense), format="csr")


def fit_baselines(encoder: Encoder, train: Dataset, limit: int) -> Mapping[str, Logits]:
    """Fit the baselines; return each one's name and its function from samples to logits.

    At most ``limit`` samples are used, spread evenly over the train split.

    Raises:
        TrainingError: those samples all have the same label, or the regression does not converge.
    """
    count = min(limit, len(train))
    samples = train.read(np.arange(count) * len(train) // count)
    positives = int(samples["label"].sum())
    if not 0 < positives < count:
        raise TrainingError(
            f"the {count} training samples that the baselines may use all have the label "
            f"{int(positives > 0)}; raise evaluate.baseline_units, or check label_above"
        )
    base_rate = np.log(positives / (count - positives))
    return {
        "boosted_trees": BoostedTrees(encoder, samples).compute_logits,
        "logistic_regression": Regression(encoder, samples).compute_logits,
        "base_rate": lambda part: np.full(len(part["label"]), base_rate),
    }


def _find_best_c(rows: sparse.csr_array, samples: Samples) -> float:
    """Return the value of C_VALUES with the lowest loss on the held-out rows."""
    labels, held_mask = samples["label"], select_held_out(samples)
    if held_mask is None:
        log.warning("%d rows are too few to choose C; it is set to 1", len(labels))
        return 1.0

    def compute_loss(c: float) -> float:
        model = _fit_logistic_regression(rows[~held_mask], labels[~held_mask], c)
        score_columns = build_columns(model.decision_function(rows[held_mask]), labels[held_mask])
        return float(score_columns["log_loss.sum"].mean())

    return min(C_VALUES, key=compute_loss)


def _fit_logistic_regression(
    rows: sparse.csr_array, labels: np.ndarray, c: float
) -> LogisticRegression:
    """Fit a logistic regression. Raises TrainingError if it does not converge."""
    # The default solver, lbfgs, stops 1e-4 nats short of the optimum on the flights data.
    model = LogisticRegression(C=c, solver="newton-cg", max_iter=MAX_ITERATIONS)
    model.fit(rows, labels)
    if model.n_iter_.max() >= MAX_ITERATIONS:
        # A baseline that has not converged is too easy to beat, so the gate must not use it.
        raise TrainingError(
            f"the logistic regression (C = {c:g}) has not converged after {MAX_ITERATIONS} "
            "iterations; look for numbers that are far from the rest, or lower workload.config.clip"
        )
    return model


BLOCKS, HELD_OUT_EVERY = 100, 5


def select_held_out(samples: Samples) -> np.ndarray | None:
    """Return which rows to hold out, bool (n,), or None if a part would have only one label.

    A fifth is held out: of the groups, if rows have them, otherwise of BLOCKS blocks of
    neighbouring rows, because neighbours are often similar.
    """
    labels = samples["label"]
    block = np.arange(len(labels)) * BLOCKS // len(labels)
    if "group" in samples:
        block = np.unique(samples["group"], return_inverse=True)[1]
    held_mask = block % HELD_OUT_EVERY == HELD_OUT_EVERY - 1
    both = all(len(np.unique(labels[mask])) == 2 for mask in (held_mask, ~held_mask))
    return held_mask if both else None
