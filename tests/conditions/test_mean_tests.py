"""The p-values, and the limits of an improvement that turn them round: definitions, and better is
never worse.
"""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.stats import t, ttest_1samp

from conditions.improvement import (
    BLOCKS,
    Groups,
    count_effective_groups,
    estimate_improvement,
    sum_into_blocks,
)
from conditions.mean_tests import (
    _choose_bets,
    compute_approximate_p_value,
    compute_betting_p_value,
    compute_neyman_p_value,
    compute_pearson_p_value,
)

TESTS = [
    lambda values: compute_betting_p_value(values, 0.05),
    compute_neyman_p_value,
    compute_pearson_p_value,
]
BOUNDED = st.lists(st.floats(-1, 1, width=32), min_size=2, max_size=40)


def signs(wins: int, count: int) -> np.ndarray:
    return np.r_[np.ones(wins), -np.ones(count - wins)]


@pytest.mark.parametrize("p_value", TESTS)
@given(BOUNDED, st.integers(0, 39), st.floats(0, 2), st.randoms())
def test_neither_order_nor_a_raised_value_makes_it_larger_and_a_mean_of_0_is_no_evidence(
    p_value, values, place, raised, random
):
    before = np.array(values)
    after = before.copy()
    after[place % len(before)] += raised
    assert p_value(after) <= p_value(before) * (1 + 1e-9) + 1e-12
    random.shuffle(values)
    assert p_value(np.array(values)) == pytest.approx(p_value(before), rel=1e-6, abs=1e-12)
    centred = before - np.mean(before)
    assert p_value(np.maximum(centred, -1) - 1e-6) > 0.3


def test_a_bet_is_a_martingale_at_the_mean_0():
    """E[wealth] = 1 for the distribution with the most spread, by summing over all outcomes."""
    shares, weights = _choose_bets(0.05, 12)
    assert weights.sum() == 1 and (np.diff(shares) > 0).all() and shares[-1] == 1
    expected = sum(
        math.comb(12, wins) / 2**12 / compute_betting_p_value(signs(wins, 12), 0.05)
        for wins in range(13)
        if compute_betting_p_value(signs(wins, 12), 0.05) < 1
    )
    assert expected <= 1


@pytest.mark.parametrize(("wins", "count"), [(24, 30), (36, 50), (65, 100)])
def test_wins_that_have_to_pass_do_and_so_does_every_better_table(wins, count):
    for better in range(wins, count + 1):
        assert compute_betting_p_value(signs(better, count), 0.045) < 0.045
        assert compute_approximate_p_value(signs(better, count)) < 0.045


def test_neymans_is_students_t_where_no_gain_is_large():
    values = np.random.default_rng(0).normal(0.2, 1, 100)
    expected = ttest_1samp(values, 0, alternative="greater").pvalue
    assert compute_neyman_p_value(values) == pytest.approx(expected)
    assert compute_neyman_p_value(np.r_[values, 1e6]) < expected  # Student's t would be 0.16
    assert compute_neyman_p_value(values * 1e-200) == pytest.approx(expected)
    assert (
        compute_pearson_p_value(np.array([0.0, 1.0, 2.0])) == 0
    )  # none needs weights that balance it
    assert compute_neyman_p_value(np.full(5, 0.25)) == 0
    assert compute_neyman_p_value(np.array([1.0])) == compute_pearson_p_value(np.array([1.0])) == 1


@pytest.mark.parametrize("seed", range(2))
def test_pearsons_is_the_nearest_weights_that_balance_the_values(seed):
    values = np.random.default_rng(seed).normal(0.3, 1, 12)
    count = len(values)
    nearest = minimize(
        lambda weights: ((1 / count - weights) ** 2 / weights).sum() * count,
        np.full(count, 1 / count),
        bounds=[(1e-9, 1)] * count,
        constraints=[
            {"type": "eq", "fun": lambda weights: weights.sum() - 1},
            {"type": "eq", "fun": lambda weights: weights @ values},
        ],
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    expected = t.sf(np.sqrt(nearest.fun), count - 1)
    assert compute_pearson_p_value(values) == pytest.approx(expected, rel=1e-3)


# limits of the improvement: they turn the tests round, and a better table has higher ones


LARGEST = pytest.mark.parametrize("largest", [None, 1.0])


def groups(difference, weight=None, largest=None, level=0.05) -> Groups:
    difference = np.asarray(difference, float)
    weight = np.ones(len(difference)) if weight is None else np.asarray(weight, float)
    return Groups(difference=difference, weight=weight, largest=largest, level=level)


def draw_differences(
    seed: int, count: int = 60, mean: float = 0.1
) -> tuple[np.ndarray, np.ndarray]:
    source = np.random.default_rng(seed)
    weight = source.lognormal(0, 0.5, count)
    return np.clip(source.normal(mean, 0.3, count), -1, 1) * weight, weight


@LARGEST
@pytest.mark.parametrize("seed", range(2))
def test_a_limit_is_where_the_test_turns(largest, seed):
    sums = groups(*draw_differences(seed), largest=largest)
    found = estimate_improvement(sums, 0.95)
    assert found.low < found.value < found.high
    assert found.method == ("approximate" if largest is None else "betting")
    assert sums.compute_p_at_most(found.low) == pytest.approx(0.05, rel=1e-4)
    assert sums.compute_p_at_least(found.high) == pytest.approx(0.05, rel=1e-4)
    difference, weight = draw_differences(seed)
    mirrored = estimate_improvement(groups(-difference, weight, largest), 0.95)
    assert mirrored.low == pytest.approx(-found.high, abs=1e-6)


@LARGEST
@given(st.integers(0, 50), st.integers(0, 59), st.floats(0, 1))
def test_a_better_group_never_lowers_a_limit(largest, seed, place, raised):
    difference, weight = draw_differences(seed)
    better = difference.copy()
    better[place] = min(weight[place], better[place] + raised * weight[place])
    before, after = (estimate_improvement(groups(one, weight, largest), 0.95)
                     for one in (difference, better))  # fmt: skip
    assert after.low >= before.low - 1e-7 and after.high >= before.high - 1e-7


def test_equal_models_are_equal_and_a_single_group_says_nothing():
    same = estimate_improvement(groups(np.zeros(10)), 0.95)
    assert same.low == same.value == same.high == 0
    one = estimate_improvement(groups([0.3]), 0.95)
    assert one.low == -np.inf and one.high == np.inf


def test_a_range_that_is_small_beside_the_margin_decides_at_once():
    sums = groups([0.01, -0.01], largest=0.02)
    assert sums.compute_p_at_most(-0.02) == 0 and sums.compute_p_at_most(-0.01) > 0.3


def test_the_largest_group_counts_for_the_bets():
    """Twice the weight in one group of 20 is half the evidence of the others."""
    wins = np.ones(20)
    equal = groups(wins, largest=1.0).compute_p_at_most(0)
    weight = np.r_[np.ones(19), 10.0]
    heavy = groups(wins * weight, weight, 1.0).compute_p_at_most(0)
    assert equal < 1e-3 < heavy


def test_ordered_groups_are_joined_to_runs_of_neighbours():
    difference, weight = draw_differences(0, count=100)
    joined = sum_into_blocks(difference, weight)
    assert len(joined[0]) == BLOCKS and joined[0].sum() == pytest.approx(difference.sum())
    assert len(sum_into_blocks(difference[:5], weight[:5])[0]) == 5


def test_effective_groups_are_kishs():
    assert (
        count_effective_groups(np.full(7, 3.0)) == pytest.approx(7)
        and count_effective_groups(np.zeros(3)) == 0
    )
    assert count_effective_groups(np.array([1.0, 1e-12])) == pytest.approx(1)
