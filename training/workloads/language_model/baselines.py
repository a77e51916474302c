"""Baselines that a model must beat: token frequencies, and frequencies of pairs."""

import numpy as np

from training.data.dataset import Dataset
from training.workloads.language_model.scores import metrics, scores
from training.workloads.language_model.tokenizer import Tokenizer

CONCENTRATIONS = (1.0, 10.0, 100.0, 1000.0)
SCORED_SAMPLES = 1024  # samples at a time


class Bigram:
    """Unigram and bigram probabilities from counts.

    unigram: p(b) = (c(b) + 1) / (N + V), Laplace's rule. bigram: p(b | a) = (c(ab) + k p(b)) /
    (c(a) + k), the mean under a Dirichlet prior around the unigram (MacKay & Peto 1995); k is
    the value in CONCENTRATIONS that predicts the last tenth of the training tokens best.
    """

    def __init__(self, tokens: np.ndarray, vocabulary: int) -> None:
        """Count; ``tokens``: samples of shape (n, width)."""
        self._vocabulary = vocabulary
        held_out = max(1, len(tokens) // 10)
        self._count(tokens[:-held_out] if len(tokens) > 1 else tokens)
        self.concentration = min(CONCENTRATIONS, key=lambda k: self._cost(tokens[-held_out:], k))
        self._count(tokens)

    def unigram(self, targets: np.ndarray) -> np.ndarray:
        """Return −ln p(target) for targets of any shape."""
        return -np.log(self._unigram[targets])

    def bigram(self, previous: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return −ln p(target | previous) for arrays of the same shape."""
        return self._bigram(previous, targets, self.concentration)

    def likeliest(self, previous: np.ndarray) -> np.ndarray:
        """Return the likeliest token after each of ``previous``."""
        return self._best[previous]

    def _count(self, tokens: np.ndarray) -> None:
        previous, targets = tokens[:, :-1].astype(np.int64), tokens[:, 1:]
        pairs, counts = np.unique(previous * self._vocabulary + targets, return_counts=True)
        self._pairs, self._pair_counts = pairs, counts
        self._previous = np.bincount(previous.ravel(), minlength=self._vocabulary)
        frequency = np.bincount(targets.ravel(), minlength=self._vocabulary)
        self._unigram = (frequency + 1) / (targets.size + self._vocabulary)
        self.commonest = int(frequency.argmax())
        order = np.argsort(counts, kind="stable")  # so the most frequent pair is written last
        self._best = np.full(self._vocabulary, self.commonest)
        self._best[pairs[order] // self._vocabulary] = pairs[order] % self._vocabulary

    def _bigram(self, previous: np.ndarray, targets: np.ndarray, k: float) -> np.ndarray:
        code = previous.astype(np.int64) * self._vocabulary + targets
        places = np.minimum(np.searchsorted(self._pairs, code), len(self._pairs) - 1)
        pair_counts = np.where(self._pairs[places] == code, self._pair_counts[places], 0)
        return -np.log((pair_counts + k * self._unigram[targets]) / (self._previous[previous] + k))

    def _cost(self, tokens: np.ndarray, k: float) -> float:
        return float(self._bigram(tokens[:, :-1], tokens[:, 1:], k).sum())


def evaluate(
    train: Dataset, test: Dataset, tokenizer: Tokenizer, limit: int
) -> dict[str, dict[str, float]]:
    """Return ``unigram`` and ``bigram`` → metric → value, from at most ``limit`` train tokens."""
    model = Bigram(_first(train, limit), tokenizer.size)

    def unigram(samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        targets = samples[:, 1:]
        return model.unigram(targets), targets == model.commonest

    def bigram(samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        previous, targets = samples[:, :-1], samples[:, 1:]
        return model.bigram(previous, targets), targets == model.likeliest(previous)

    results = {}
    for name, predict in (("unigram", unigram), ("bigram", bigram)):
        metric_values = metrics(scores(test, tokenizer, predict, SCORED_SAMPLES))
        results[name] = {metric: entry["value"] for metric, entry in metric_values.items()}
    return results


def _first(dataset: Dataset, limit: int) -> np.ndarray:
    """Return samples from the dataset's front: at least one, at most ``limit`` tokens."""
    [width] = dataset.fields["tokens"].shape or ()
    count = min(len(dataset), max(1, limit // width))
    return dataset.read(np.arange(count))["tokens"]
