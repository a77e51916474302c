"""Gradient-boosted trees as a baseline: for tables they are what a network has to beat.

scikit-learn's, and not XGBoost's: on the flights they predict better for half the CPU time, if with
more memory; they take categories and missing values
as they are, and the job installs no further package for them.
"""

import logging

import numpy as np
import torch
from sklearn.ensemble import HistGradientBoostingClassifier
from threadpoolctl import threadpool_limits

from training.data.manifest import Samples
from training.workloads.tabular.held_out import held_out
from training.workloads.tabular.model import Encoder, inputs

log = logging.getLogger(__name__)

LEARNING_RATE = 0.05
"""Half of scikit-learn's. On the flights, 0.1 and 0.03 change the log loss by less than 0.0005."""
MOST_ROUNDS = 1000
PATIENCE = 10
"""Rounds without a better held-out loss after which no more are tried."""
USUAL_ROUNDS = 100
"""scikit-learn's, where there are too few rows to choose on."""
CODES = 255
"""Values that a category may have: scikit-learn's most. The rarest of more share the last one."""


class Columns:
    """Stored samples → what the trees see: the categories' codes, then the numbers as they are.

    A category's codes count from 0, those of the commonest ids of ``samples`` first.
    """

    def __init__(self, encoder: Encoder, samples: Samples) -> None:
        self._encoder = encoder
        ids = self._ids(samples)
        sizes = enumerate(encoder.sizes)
        self._codes = [_codes(ids[:, column], size) for column, size in sizes]
        self.categories = list(range(len(self._codes)))
        """Which columns are categories."""

    def of(self, samples: Samples) -> np.ndarray:
        """float64 (n, columns); NaN for a missing number."""
        ids = self._ids(samples)
        _, numbers = inputs({name: torch.from_numpy(array) for name, array in samples.items()})
        rows = np.empty((len(ids), len(self._codes) + numbers.shape[1]))
        for column, codes in enumerate(self._codes):
            rows[:, column] = codes[ids[:, column]]
        rows[:, len(self._codes) :] = numbers.numpy()
        return rows

    def _ids(self, samples: Samples) -> np.ndarray:
        batch = {name: torch.from_numpy(array) for name, array in samples.items()}
        return self._encoder.ids(inputs(batch)[0]).numpy()


class BoostedTrees:
    """Histogram-based boosted trees on ``Columns``.

    The number of rounds is the one that predicts a held-out fifth best; then all rows are fitted.
    It takes 8 bytes a value and 1 more for its bin, and at most as many threads as torch has. The
    same samples give the same trees, whatever the number of threads.
    """

    def __init__(self, encoder: Encoder, samples: Samples) -> None:
        self.columns = Columns(encoder, samples)
        rows, labels = self.columns.of(samples), samples["label"]
        with threadpool_limits(torch.get_num_threads(), user_api="openmp"):
            self.rounds = self._best_rounds(rows, samples)
            self._model = self._unfitted(self.rounds).fit(rows, labels)
        log.info("boosted trees: %d rounds, of at most %d", self.rounds, MOST_ROUNDS)

    def logits(self, samples: Samples) -> np.ndarray:
        with threadpool_limits(torch.get_num_threads(), user_api="openmp"):
            return self._model.decision_function(self.columns.of(samples))

    def _unfitted(self, rounds: int, patience: int | None = None) -> HistGradientBoostingClassifier:
        return HistGradientBoostingClassifier(
            learning_rate=LEARNING_RATE,
            max_iter=rounds,
            categorical_features=self.columns.categories or None,
            early_stopping=patience is not None,
            n_iter_no_change=patience or PATIENCE,
            random_state=0,  # of the rows that bins are found on, where there are over 200,000
        )

    def _best_rounds(self, rows: np.ndarray, samples: Samples) -> int:
        held, labels = held_out(samples), samples["label"]
        if held is None:
            log.warning(
                "%d rows are too few to choose the rounds on: %d", len(labels), USUAL_ROUNDS
            )
            return USUAL_ROUNDS
        model = self._unfitted(MOST_ROUNDS, PATIENCE)
        model.fit(rows[~held], labels[~held], X_val=rows[held], y_val=labels[held])
        return max(1, int(np.argmax(model.validation_score_)))  # the first is of no round at all


def _codes(ids: np.ndarray, size: int) -> np.ndarray:
    """Id → code below CODES, the commonest ids first; float64 (size,)."""
    order = np.argsort(-np.bincount(ids, minlength=size), kind="stable")
    codes = np.empty(size)
    codes[order] = np.minimum(np.arange(size), CODES - 1)
    return codes
