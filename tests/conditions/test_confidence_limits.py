"""Student's t that minds skewed groups, groups that follow their weights, and groups in order."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats

from conditions.confidence_limits import (
    MOST,
    Differing,
    Sized,
    Student,
    bend,
    l_skewness,
    ordered,
    tails,
)
from conditions.paired import improvement

CONFIDENCES = st.floats(0.6, 0.999)
ERRORS = st.floats(0.01, 100)


def promoted(draw, pairs: int, **options) -> float:
    """Share of pairs whose lower limit is above 0; ``draw``: source → (difference, weight)."""
    sources = [np.random.default_rng(seed) for seed in range(pairs)]
    return np.mean([improvement(*draw(one), 0.95, **options).low > 0 for one in sources])


def worse_when_long(source: np.random.Generator, groups: int = 120):
    """Documents of log-normal lengths; the challenger is better on short ones, on average equal."""
    length = source.lognormal(0, 1, groups)
    return length * (np.exp(1.5) - length) + length * source.normal(0, 1, groups), length


def days(source: np.random.Generator, groups: int = 60, likeness: float = 0.5):
    difference = source.normal(size=groups)
    for day in range(1, groups):
        own = np.sqrt(1 - likeness**2) * difference[day]
        difference[day] = likeness * difference[day - 1] + own
    return difference, np.ones(groups)


def mostly_tied(source: np.random.Generator, noise: float, margin: float):
    """300 groups, of which one in ten differs, so that the challenger is worse by the margin."""
    differs = source.uniform(size=300) < 0.1
    moved = np.exp(0.5) - source.lognormal(0, 1, 300) - margin / 0.1
    return np.where(differs, moved, 0) + noise * source.normal(size=300), np.ones(300)


def test_l_skewness_is_that_of_known_distributions():
    """Hosking 1990, table 1: 1/3 for the exponential, 0 for what is symmetric."""
    source = np.random.default_rng(0)
    assert l_skewness(source.exponential(size=200_000)) == pytest.approx(1 / 3, abs=0.01)
    assert l_skewness(source.standard_t(3, size=200_000)) == pytest.approx(0, abs=0.02)
    assert l_skewness(np.array([0.0, 0, 0, 1])) == pytest.approx(1)
    assert l_skewness(np.full(9, 0.1)) == 0 == l_skewness(np.array([1.0, 5]))


@given(st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=30))
@example([0.0, 5e-324, 5e-324])
def test_l_skewness_turns_with_the_sign_and_stays_in_its_range(values: list[float]):
    sample = np.array(values)
    assert -1 <= l_skewness(sample) <= 1
    assert l_skewness(-sample) == pytest.approx(-l_skewness(sample), abs=1e-4)
    below, above = tails(sample, -sample)
    assert below == pytest.approx(above, abs=1e-4)


@given(CONFIDENCES, ERRORS, st.floats(5, 1000), st.floats(0, MOST))
def test_the_chance_of_what_it_reaches_is_one_less_the_confidence(confidence, error, freedom, bent):
    limit = Student(error=error, freedom=freedom, bend=bent)
    assert limit.chance(limit.reach(confidence)) == pytest.approx(1 - confidence, rel=1e-5)
    both = Sized(rest=1.0, weights=limit)
    assert both.chance(both.reach(confidence)) == pytest.approx(1 - confidence, rel=1e-5)
    assert both.reach(confidence) >= limit.reach(confidence)


@given(CONFIDENCES, ERRORS, st.floats(5, 1000), st.floats(0, 0.5), st.floats(-10, 10))
def test_a_bound_at_the_reach_of_groups_that_differ_has_that_chance(
    confidence, error, freedom, bent, value
):
    own = Student(error=error, freedom=freedom, bend=bent)
    limit = Differing(own=own, share=0.05, value=value)
    distance = limit.reach(confidence)
    assert limit.chance(distance) == pytest.approx(1 - confidence, rel=1e-4)
    assert (value > distance) == (value > own.reach(confidence))  # 0 is decided by the mean alone
    without = Differing(own=own, share=0.0, value=value)
    assert without.reach(confidence) == pytest.approx(own.reach(confidence))


def test_without_skewness_it_is_students_t_and_with_it_reaches_further():
    plain = Student(error=2.0, freedom=29)
    assert plain.reach(0.95) == pytest.approx(2 * stats.t(29).ppf(0.95))
    bent = [Student(error=2.0, freedom=29, bend=bend(tail, 30)) for tail in (-0.4, 0.2, 0.4, 0.9)]
    reaches = [limit.reach(0.95) for limit in bent]
    assert reaches == sorted(reaches) and reaches[0] == plain.reach(0.95)


def test_worse_on_what_is_long_is_not_taken_for_better():
    """22 % of such challengers were promoted, and are no better: 9 of 150 are 5 % and chance."""
    assert promoted(worse_when_long, 150) <= 9 / 150


@pytest.mark.parametrize(("noise", "margin"), [(0.0, 0.0), (1e-6, 0.0), (0.0, 0.03)])
def test_groups_that_tie_are_no_evidence(noise, margin):
    """27, 27 and 30 of 200 such challengers were promoted: 5 % and chance are 18."""
    hits = 0
    for seed in range(200):
        source = np.random.default_rng(seed)
        moved, weight = mostly_tied(source, noise, margin)
        hits += improvement(moved, weight, 0.95, resamples=0).low > -margin
    assert hits <= 18


def test_an_improvement_of_groups_that_mostly_tie_is_still_found():
    """Four standard errors, on one group in ten of 300: 270 of 300 would be 90 %."""

    def better(source: np.random.Generator):
        differs = source.uniform(size=300) < 0.1
        gained = 4 / np.sqrt(300 * 0.1)
        return np.where(differs, source.normal(gained, 1, 300), 0), np.ones(300)

    assert promoted(better, 100, resamples=0) >= 0.9


def test_long_tails_to_the_other_side_cost_nothing():
    difference, weight = worse_when_long(np.random.default_rng(3))
    one, other = improvement(difference, weight, 0.95), improvement(-difference, weight, 0.95)
    assert one.value - one.low > 3 * (other.value - other.low)
    assert one.low == pytest.approx(-other.high)


def test_neighbours_that_are_alike_are_fewer_than_they_look():
    """Of 200 pairs that are not better, 34 were promoted: 5 % and chance are 18."""
    assert promoted(days, 200, resamples=0) > 0.1
    assert promoted(days, 200, resamples=0, in_order=True) <= 0.09


def test_the_waves_know_the_variance_of_independent_groups():
    found = [ordered(np.random.default_rng(n).normal(size=400)).error for n in range(100)]
    assert np.mean(np.square(found)) == pytest.approx(400, rel=0.05)
