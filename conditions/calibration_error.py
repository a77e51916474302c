"""The expected calibration error of a binary classifier's probabilities, with an upper limit.

The examples are sorted by their predicted probability and divided into ``PARTS`` of equal size. The
error is the mean distance between a part's mean probability and its share of positives, weighted by
size (Naeini, Cooper & Hauskrecht, AAAI 2015; parts of equal size estimate it with less bias:
Roelofs et al., AISTATS 2022). Noise makes the estimate too large on average, and the bootstrap's
upper limit even more so. So a model passes only if it is shown to be calibrated, and a small test
split shows less. For the same reason no quantile of the bootstrap is a lower limit: for true
probabilities, the error is 0, and each quantile would be above it.

Neither Spiegelhalter's test nor a calibration slope is used: with enough examples any model fails
the test, and the slope is not a distance in the unit of the probability, which a recipe could
limit.
"""

import numpy as np
from numpy.typing import NDArray

from trainyard.common.errors import GateError

PARTS = 15
FINE = 1024
"""Number of cells of the logit's range in which examples are counted. The cells are then joined to
``PARTS`` parts of equal size."""
REACH = 16.0
"""Larger logits count as this one. It is a probability of 1.1e-7, and float32 cannot distinguish
probabilities that are closer to 1."""
BLOCKS = 256
"""Number of blocks of groups that are resampled by the bootstrap. They take 6 MB in all."""
RESAMPLES = 999
SEED = 20261121

Floats = NDArray[np.float64]


def estimate_calibration_error(
    blocks: NDArray[np.int64], probability: Floats, label: Floats, confidence: float
) -> tuple[float, float]:
    """Return the expected calibration error and its one-sided upper limit.

    Args:
        blocks: (rows,) number, below ``BLOCKS``, of the block that contains the example's group.

    Raises:
        GateError: a probability is not between 0 and 1, or a label is not 0 or 1.
    """
    if not ((probability >= 0) & (probability <= 1)).all():
        raise GateError("probability: a value is not between 0 and 1")
    if not ((label == 0) | (label == 1)).all():
        raise GateError("label: a value is neither 0 nor 1")
    with np.errstate(divide="ignore"):  # a probability of 0 or 1 has an infinite logit
        logit = np.log(probability) - np.log1p(-probability)
    position = (np.clip(logit, -REACH, REACH) + REACH) * (FINE / (2 * REACH))
    cells = blocks * FINE + np.minimum(position.astype(np.int64), FINE - 1)
    counts = [np.bincount(cells, weights, BLOCKS * FINE) for weights in (None, probability, label)]
    sums = np.stack(counts).reshape(3, BLOCKS, FINE).astype(np.float64)
    # Join the cells to at most ``PARTS`` parts of about as many examples each.
    examples = sums[0].sum(axis=0)
    below = np.cumsum(examples) - examples
    part = (below * PARTS / examples.sum()).astype(np.int64)
    sums = np.add.reduceat(sums, np.flatnonzero(np.diff(part, prepend=-1)), axis=2)
    sums = sums[:, sums[0].sum(axis=1) > 0]  # only blocks that contain examples
    # A fixed seed, so that the same scores always get the same verdict.
    generator = np.random.default_rng(SEED)
    resamples = generator.integers(0, sums.shape[1], size=(RESAMPLES, sums.shape[1]))
    errors = np.array([_compute_error(sums[:, rows].sum(axis=1)) for rows in resamples])
    value = _compute_error(sums.sum(axis=1))
    return value, max(float(np.quantile(errors, confidence)), value)


def _compute_error(sums: Floats) -> float:
    """Return the error from sums of shape (3, parts): examples, Σ probability, Σ label."""
    return float(np.abs(sums[1] - sums[2]).sum() / sums[0].sum())
