"""Are a binary classifier's probabilities true? The expected calibration error, with a limit.

The examples are cut into ``PARTS`` of equal size by their predicted probability; the error is the
mean distance between a part's mean probability and its share of positives, weighted by size
(Naeini, Cooper & Hauskrecht, AAAI 2015; of equal sizes, which estimates it with less bias:
Roelofs et al., AISTATS 2022). Noise makes the estimate too large on average, and the bootstrap's
upper limit more so: a model passes when it is shown to be calibrated, and a small test split shows
less. For the same reason no quantile of the bootstrap is a lower limit: of true probabilities each
would lie above the truth, which is 0.

Not Spiegelhalter's test nor a slope: with enough examples any model fails the one, and the other is
no distance in the probability's own unit, which a recipe could bound.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from trainyard.common.errors import GateError

PARTS = 15
FINE = 1024
"""Parts of the logit's range that are counted, before they are joined to ``PARTS`` equal ones."""
REACH = 16.0
"""Logits beyond are counted at it: 1.1e-7, finer than a float32 tells from 1."""
BLOCKS = 256
"""Groups are counted in so many blocks, which are resampled; 6 MB in all."""
RESAMPLES = 999
SEED = 20261121

Floats = NDArray[np.float64]


def _nothing() -> Floats:
    return np.zeros((BLOCKS, FINE))


@dataclass(slots=True)
class Reliability:
    """Counts over (block of groups, fine part of the probability)."""

    examples: Floats = field(default_factory=_nothing)
    predicted: Floats = field(default_factory=_nothing)
    """Σ probability."""
    positive: Floats = field(default_factory=_nothing)
    """Σ label."""

    def add(self, bins: NDArray[np.int64], probability: Floats, label: Floats) -> None:
        """Another batch: (rows,) each; ``bins`` number the examples' groups.

        Raises:
            GateError: a probability is not between 0 and 1, or a label not 0 or 1.
        """
        if not ((probability >= 0) & (probability <= 1)).all():
            raise GateError("probability: a value is not between 0 and 1")
        if not ((label == 0) | (label == 1)).all():
            raise GateError("label: a value is neither 0 nor 1")
        cells = bins % BLOCKS * FINE + _fine(probability)
        for sums, weights in (
            (self.examples, None),
            (self.predicted, probability),
            (self.positive, label),
        ):
            sums += np.bincount(cells, weights, sums.size).reshape(sums.shape)

    def error(self, confidence: float) -> tuple[float, float]:
        """The expected calibration error, and its one-sided upper limit."""
        part = _parts(self.examples.sum(axis=0))
        sums = np.stack([self.examples, self.predicted, self.positive])
        sums = np.add.reduceat(sums, part, axis=2)
        sums = sums[:, sums[0].sum(axis=1) > 0]  # blocks that hold examples
        generator = np.random.default_rng(SEED)
        drawn = generator.integers(0, sums.shape[1], size=(RESAMPLES, sums.shape[1]))
        resampled = np.array([_error(sums[:, rows].sum(axis=1)) for rows in drawn])
        value = _error(sums.sum(axis=1))
        return value, max(float(np.quantile(resampled, confidence)), value)


def _fine(probability: Floats) -> NDArray[np.int64]:
    with np.errstate(divide="ignore"):
        logit = np.log(probability) - np.log1p(-probability)
    place = (np.clip(logit, -REACH, REACH) + REACH) * (FINE / (2 * REACH))
    return np.minimum(place.astype(np.int64), FINE - 1)


def _parts(examples: Floats) -> NDArray[np.int64]:
    """The beginning of each of at most ``PARTS`` parts, which hold about as many examples each."""
    below = np.cumsum(examples) - examples
    part = (below * PARTS / examples.sum()).astype(np.int64)
    return np.flatnonzero(np.diff(part, prepend=-1))


def _error(sums: Floats) -> float:
    """(3, parts): examples, Σ probability, Σ label → the error."""
    return float(np.abs(sums[1] - sums[2]).sum() / sums[0].sum())
