"""Limits of the improvement: they turn the tests round, and a better table has higher ones."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conditions.improvement import (
    BLOCKS,
    Groups,
    effective_groups,
    improvement,
    joined_neighbours,
)

LARGEST = pytest.mark.parametrize("largest", [None, 1.0])


def groups(difference, weight=None, largest=None, level=0.05) -> Groups:
    difference = np.asarray(difference, float)
    weight = np.ones(len(difference)) if weight is None else np.asarray(weight, float)
    return Groups(difference=difference, weight=weight, largest=largest, level=level)


def drawn(seed: int, count: int = 60, mean: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
    source = np.random.default_rng(seed)
    weight = source.lognormal(0, 0.5, count)
    return np.clip(source.normal(mean, 0.3, count), -1, 1) * weight, weight


@LARGEST
@pytest.mark.parametrize("seed", range(3))
def test_a_limit_is_where_the_test_turns(largest, seed):
    sums = groups(*drawn(seed), largest=largest)
    found = improvement(sums, 0.95)
    assert found.low < found.value < found.high
    assert found.method == ("approximate" if largest is None else "betting")
    assert sums.chance_not_above(found.low) == pytest.approx(0.05, rel=1e-4)
    assert sums.chance_not_below(found.high) == pytest.approx(0.05, rel=1e-4)


@LARGEST
@given(st.integers(0, 50), st.integers(0, 59), st.floats(0, 1))
def test_a_better_group_never_lowers_a_limit(largest, seed, place, raised):
    difference, weight = drawn(seed)
    better = difference.copy()
    better[place] = min(weight[place], better[place] + raised * weight[place])
    before, after = (improvement(groups(one, weight, largest), 0.95)
                     for one in (difference, better))  # fmt: skip
    assert after.low >= before.low - 1e-7 and after.high >= before.high - 1e-7


@LARGEST
def test_signs_are_mirrored(largest):
    difference, weight = drawn(4)
    found = improvement(groups(difference, weight, largest), 0.9)
    mirrored = improvement(groups(-difference, weight, largest), 0.9)
    assert mirrored.low == pytest.approx(-found.high, abs=1e-6)


def test_equal_models_are_equal_and_a_single_group_says_nothing():
    same = improvement(groups(np.zeros(10)), 0.95)
    assert same.low == same.value == same.high == 0
    one = improvement(groups([0.3]), 0.95)
    assert one.low == -np.inf and one.high == np.inf


def test_a_range_that_is_small_beside_the_margin_decides_at_once():
    sums = groups([0.01, -0.01], largest=0.02)
    assert sums.chance_not_above(-0.02) == 0 and sums.chance_not_above(-0.01) > 0.3


def test_the_largest_group_counts_for_the_bets():
    """Twice the weight in one group of 20 is half the evidence of the others."""
    wins = np.ones(20)
    equal = groups(wins, largest=1.0).chance_not_above(0)
    weight = np.r_[np.ones(19), 10.0]
    heavy = groups(wins * weight, weight, 1.0).chance_not_above(0)
    assert equal < 1e-3 < heavy


def test_ordered_groups_are_joined_to_runs_of_neighbours():
    difference, weight = drawn(0, count=100)
    joined = joined_neighbours(difference, weight)
    assert len(joined[0]) == BLOCKS and joined[0].sum() == pytest.approx(difference.sum())
    assert len(joined_neighbours(difference[:5], weight[:5])[0]) == 5


def test_effective_groups_are_kishs():
    assert (
        effective_groups(np.full(7, 3.0)) == pytest.approx(7) and effective_groups(np.zeros(3)) == 0
    )
    assert effective_groups(np.array([1.0, 1e-12])) == pytest.approx(1)
