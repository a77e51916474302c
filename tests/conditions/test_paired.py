"""The limits of an improvement: against SciPy and statsmodels, and against known truth."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from conditions.paired import improvement


def sums(seed: int = 0, groups: int = 40, spread: float = 0.8):
    source = np.random.default_rng(seed)
    weight = source.lognormal(3, spread, groups)
    return (source.normal(0.1, 0.5, groups) * weight, weight)


def test_groups_of_one_weight_give_the_t_interval_of_their_means():
    half = np.random.default_rng(0).normal(0, 1, 15)
    difference = 0.2 + np.concatenate([half, -half])  # no more skewed to one side than to the other
    found = improvement(difference * 7, np.full(30, 7.0), 0.95, resamples=0)
    expected = stats.ttest_1samp(difference, 0)
    interval = expected.confidence_interval(0.90)
    assert found.value == pytest.approx(difference.mean())
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
    assert found.effective_groups == pytest.approx(30)
    above = stats.ttest_1samp(difference, 0.1, alternative="less")
    assert found.chance_below(0.1) == pytest.approx(above.pvalue)


def test_the_standard_error_is_statsmodels_cluster_robust_one_and_a_little_more():
    """A ratio of sums is a weighted regression on a constant; CV1 lacks the jackknife's part."""
    import statsmodels.api as statsmodels

    difference, weight = sums()
    rows = 5  # of each group, all alike
    groups = np.repeat(np.arange(len(weight)), rows)
    model = statsmodels.WLS(
        np.repeat(difference / weight, rows), np.ones(len(groups)), np.repeat(weight / rows, rows)
    )
    robust = model.fit(cov_type="cluster", cov_kwds={"groups": groups, "use_correction": False})
    found = improvement(difference, weight, 0.95)
    assert found.value == pytest.approx(robust.params[0])
    assert robust.bse[0] < found.standard_error < 1.2 * robust.bse[0]


def test_the_more_cautious_limit_is_taken():
    difference, weight = sums()
    student = improvement(difference, weight, 0.95, resamples=0)
    both = improvement(difference, weight, 0.95)
    assert both.low <= student.low and both.high >= student.high
    skewed = improvement(1 - np.random.default_rng(1).exponential(1, 40), np.ones(40), 0.95)
    assert skewed.value - skewed.low > skewed.high - skewed.value  # the long tail is below


@settings(max_examples=20)
@given(seed=st.integers(0, 1000), shift=st.floats(-2, 2), scale=st.floats(0.01, 100))
def test_a_shift_and_a_unit_move_value_and_limits_alike(seed, shift, scale):
    difference, weight = sums(seed)
    before = improvement(difference, weight, 0.9, resamples=199)
    after = improvement(scale * (difference + shift * weight), weight, 0.9, resamples=199)
    for name in ("value", "low", "high"):
        expected = scale * (getattr(before, name) + shift)
        assert getattr(after, name) == pytest.approx(expected, abs=1e-9 * scale)


def test_swapping_the_models_swaps_the_limits():
    difference, weight = sums()
    one, other = improvement(difference, weight, 0.95), improvement(-difference, weight, 0.95)
    assert one.low == pytest.approx(-other.high) and one.high == pytest.approx(-other.low)


def test_the_same_model_is_not_better_and_not_worse():
    found = improvement(np.zeros(30), np.arange(1.0, 31), 0.95)
    assert (found.value, found.low, found.high, found.standard_error) == (0, 0, 0, 0)
    assert found.chance_below(0) == 1 and found.chance_below(0.1) == 0


def test_one_group_says_nothing_and_groups_without_weight_do_not_count():
    alone = improvement(np.array([1.0]), np.array([2.0]), 0.95)
    assert (alone.value, alone.low, alone.high) == (0.5, -np.inf, np.inf)
    difference, weight = sums()
    padded = improvement(np.append(difference, 0.0), np.append(weight, 0.0), 0.95)
    assert padded == improvement(difference, weight, 0.95)


def test_few_groups_that_differ_give_no_limit():
    """One hit lost in one of 30 groups: how many such groups there are, nobody can say."""
    difference = np.zeros(30)
    difference[3] = -1
    found = improvement(difference, np.full(30, 20.0), 0.95)
    assert found.low == -np.inf and found.high == np.inf and found.differing_groups == 1


def test_what_it_finds_detectable_is_found_with_that_power():
    difference, weight = sums(groups=100)
    found = improvement(difference, weight, 0.95, resamples=0)
    effect = found.detectable(0.8)
    reach = effect / found.standard_error
    power = stats.nct(found.freedom, reach).sf(stats.t(found.freedom).ppf(0.95))
    assert power == pytest.approx(0.8, abs=0.01)
