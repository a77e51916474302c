"""The calibration error: what it measures, and that its limit covers."""

import numpy as np
import pytest

from conditions.calibration_error import BLOCKS, estimate_calibration_error
from trainyard.common.errors import GateError


def error(moved: float = 0.0, rows: int = 40_000, seed: int = 0) -> tuple[float, float]:
    """The error of predictions that are ``moved`` too high, and its limit."""
    source = np.random.default_rng(seed)
    true = source.uniform(0.05, 0.7, rows)
    label = (source.uniform(size=rows) < true).astype(float)
    return estimate_calibration_error(source.integers(0, BLOCKS, rows), true + moved, label, 0.95)


@pytest.mark.parametrize("moved", [0.03, 0.2])
def test_predictions_that_are_too_high_by_so_much_are_off_by_so_much(moved):
    value, high = error(moved)
    assert moved <= high and value == pytest.approx(moved, abs=0.01)


def test_true_probabilities_are_near_zero_and_a_small_split_shows_less():
    large, small = error(), error(rows=1000)
    assert large[1] < 0.02 < small[1]


@pytest.mark.parametrize("moved", [0.0, 0.02])
def test_the_upper_limit_is_above_the_truth_as_often_as_it_says(moved):
    """Of 30 small test splits: 5 % are 1.5, and 5 or more are 1 chance in 60."""
    limits = [error(moved, rows=600, seed=seed)[1] for seed in range(30)]
    assert sum(high < moved for high in limits) <= 4


def test_rare_positives_are_cut_into_parts_too():
    source = np.random.default_rng(0)
    predicted = 10.0 ** source.uniform(-5, -2, 200_000)
    label = (source.uniform(size=len(predicted)) < 3 * predicted).astype(float)
    blocks = source.integers(0, BLOCKS, len(predicted))
    assert estimate_calibration_error(blocks, predicted, label, 0.95)[0] == pytest.approx(
        2 * predicted.mean(), rel=0.1
    )


def test_a_single_part_and_the_ends_of_the_range_are_counted():
    probability, label = np.array([0.0, 1.0, 0.0, 1.0]), np.array([0.0, 1.0, 1.0, 1.0])
    assert estimate_calibration_error(np.arange(4), probability, label, 0.95)[0] == 0.25


@pytest.mark.parametrize(
    ("probability", "label"),
    [(1.1, 0), (-0.1, 0), (np.nan, 0), (np.inf, 1), (0.5, 2), (0.5, np.nan), (0.5, 0.5)],
)
def test_what_is_no_probability_or_label_is_refused(probability, label):
    with pytest.raises(GateError, match="probability|label"):
        estimate_calibration_error(
            np.arange(1), np.array([probability]), np.array([label], float), 0.95
        )
