"""The p-values: their methods' own definitions, their promise, and that better is never worse."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.stats import ttest_1samp

from conditions.mean_tests import (
    _bets,
    approximate_p_value,
    betting_p_value,
    neyman_p_value,
    pearson_p_value,
)

TESTS = [lambda values: betting_p_value(values, 0.05), neyman_p_value, pearson_p_value]
BOUNDED = st.lists(st.floats(-1, 1, width=32), min_size=2, max_size=40)


def signs(wins: int, count: int) -> np.ndarray:
    return np.r_[np.ones(wins), -np.ones(count - wins)]


@pytest.mark.parametrize("p_value", TESTS)
@given(BOUNDED, st.integers(0, 39), st.floats(0, 2))
def test_a_raised_value_never_makes_the_p_value_larger(p_value, values, place, raised):
    before = np.array(values)
    after = before.copy()
    after[place % len(before)] += raised
    assert p_value(after) <= p_value(before) * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize("p_value", TESTS)
@given(st.permutations(list(np.linspace(-0.8, 1, 12))))
def test_the_order_of_the_values_does_not_matter(p_value, values):
    assert p_value(np.array(values)) == pytest.approx(p_value(np.sort(values)), rel=1e-9)


@pytest.mark.parametrize("p_value", TESTS)
@given(BOUNDED)
def test_a_mean_that_is_not_above_0_is_no_evidence(p_value, values):
    centred = np.array(values) - np.mean(values)
    assert p_value(np.maximum(centred, -1) - 1e-6) > 0.3


def test_a_bet_is_a_martingale_at_the_mean_0():
    """E[wealth] = 1 for the distribution with the most spread, by summing over all outcomes."""
    shares, weights = _bets(0.05, 12)
    assert weights.sum() == 1 and (np.diff(shares) > 0).all() and shares[-1] == 1
    expected = sum(
        math.comb(12, wins) / 2**12 / betting_p_value(signs(wins, 12), 0.05)
        for wins in range(13)
        if betting_p_value(signs(wins, 12), 0.05) < 1
    )
    assert expected <= 1


@pytest.mark.parametrize(("wins", "count"), [(24, 30), (36, 50), (65, 100)])
def test_wins_that_have_to_pass_do_and_so_does_every_better_table(wins, count):
    for better in range(wins, count + 1):
        assert betting_p_value(signs(better, count), 0.045) < 0.045
        assert approximate_p_value(signs(better, count)) < 0.045


def test_neymans_is_students_t_where_no_gain_is_large():
    values = np.random.default_rng(0).normal(0.2, 1, 100)
    expected = ttest_1samp(values, 0, alternative="greater").pvalue
    assert neyman_p_value(values) == pytest.approx(expected)
    assert neyman_p_value(np.r_[values, 1e6]) < expected  # Student's t would be 0.16
    assert neyman_p_value(values * 1e-200) == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(5))
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
    from scipy.stats import t

    expected = t.sf(np.sqrt(nearest.fun), count - 1)
    assert pearson_p_value(values) == pytest.approx(expected, rel=1e-3)


def test_values_above_0_alone_need_no_weights_that_balance_them():
    assert pearson_p_value(np.array([0.0, 1.0, 2.0])) == 0
    assert neyman_p_value(np.full(5, 0.25)) == 0
    assert neyman_p_value(np.array([1.0])) == pearson_p_value(np.array([1.0])) == 1
