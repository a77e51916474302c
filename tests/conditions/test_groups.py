"""Groups that are evidence, and how they are counted."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_iris
from sklearn.model_selection import train_test_split
from sklearn.tree import DecisionTreeClassifier

from conditions.checks.influence import widespread
from conditions.checks.sample_size import GROUPS, _at_least
from conditions.checks.superiority import superior
from conditions.gate_check import reaches
from conditions.gate_evidence import Compared
from conditions.groups import differing, effective_groups, likeness, without_copies
from conditions.paired import improvement

WEIGHTS = st.floats(1e-6, 1e9)


@given(groups=st.integers(2, 5000), weight=WEIGHTS)
def test_groups_of_one_weight_are_exactly_as_many(groups, weight):
    """683 of 1,592 such counts were a little less than that, and the check demands that many."""
    assert effective_groups(np.full(groups, weight)) == groups
    found = improvement(np.arange(groups) * weight, np.full(groups, weight), 0.95, resamples=0)
    assert _at_least(GROUPS, "effective_groups", found.effective_groups, groups).passed
    assert not _at_least(GROUPS, "effective_groups", found.effective_groups, groups + 1).passed


@given(st.lists(WEIGHTS, min_size=1, max_size=50), st.integers(2, 100))
def test_a_count_of_repeated_weights_is_a_multiple(weights, times):
    """Unequal weights, too: the same weights again are as many groups again, but for rounding."""
    once, more = effective_groups(np.array(weights)), effective_groups(np.tile(weights, times))
    assert reaches(more, times * once) and reaches(times * once, more)
    assert reaches(len(weights), once) and reaches(once, 1)
    assert not reaches(once, once * (1 + 1e-6))


@given(groups=st.integers(2, 500))
def test_a_share_that_is_exactly_the_threshold_passes(groups):
    """Groups that move the improvement alike have 1/G of its variance each."""
    moved = np.where(np.arange(2 * groups) % 2, 0.1, -0.1) * 3
    found = improvement(moved, np.ones(2 * groups), 0.95, resamples=0)
    row = Compared(metric="m", challenger=1, champion=1, improvement=found, confidence=0.95)
    assert widespread(row, 1 / (2 * groups)).passed


def test_groups_without_any_weight_are_none():
    assert effective_groups(np.zeros(3)) == 0 == effective_groups(np.zeros(0))


def test_ties_are_zero_or_rounding_and_a_few_small_differences_are_none():
    source = np.random.default_rng(0)
    moved, weight = source.normal(0, 0.05, 100), source.uniform(1, 50, 100)
    assert differing(moved * weight, weight).all()
    moved[10:] = 0
    assert np.flatnonzero(differing(moved * weight, weight)).tolist() == list(range(10))
    noisy = moved + 1e-7 * source.normal(size=100)
    assert np.array_equal(differing(noisy * weight, weight), differing(moved * weight, weight))
    assert not differing(np.zeros(5), np.ones(5)).any()


def test_the_reason_says_on_how_many_groups_the_models_differ():
    moved = np.where(np.arange(60) % 6, 0.0, np.random.default_rng(0).normal(size=60))
    found = improvement(moved, np.ones(60), 0.95, resamples=0)
    row = Compared(metric="m", challenger=1, champion=1, improvement=found, confidence=0.95)
    assert "the models differ on 10 of 60 effective groups" in superior(row, 0).reason
    assert found.freedom == pytest.approx(9)


def test_copies_count_once_and_equal_counts_of_hits_are_none():
    source = np.random.default_rng(0)
    difference, weight = source.normal(size=30), np.floor(source.uniform(5, 40, 30))
    five, many = (np.repeat(difference, 5), np.repeat(weight, 5)), np.full(150, 20)
    joined, weights = without_copies(*five, many)
    assert len(joined) == 30 and joined.sum() == pytest.approx(5 * difference.sum())
    assert weights.sum() == 5 * weight.sum()
    hits, flipped = source.integers(-3, 4, 200) / 8, np.where(np.arange(200) % 3, 0.7, -1.1)
    for values in (difference, hits, hits + 0.1, flipped, np.zeros(200)):
        equal = np.full(len(values), 20)
        assert without_copies(values, equal.astype(float), equal)[0] is values
    found = improvement(*five, 0.95, resamples=0, examples=many)
    alone = improvement(difference, weight, 0.95, resamples=0)
    row = Compared(metric="m", challenger=1, champion=1, improvement=found, confidence=0.95)
    assert found.copies == 120 and "120 groups are exact copies" in superior(row, 0).reason
    assert (found.low, found.effective_groups) == pytest.approx((alone.low, alone.effective_groups))


def test_rows_that_agree_by_chance_are_not_copies():
    """A table whose columns have few values: 13 different rows, each its own group."""
    moved = np.random.default_rng(0).normal(size=13)[np.arange(200) % 13]
    found = improvement(moved, np.ones(200), 0.95, resamples=0, examples=np.ones(200, int))
    assert (found.copies, found.effective_groups) == (0, 200)


def test_two_trees_of_somebody_elses_data_have_no_copies():
    """Iris: two decision trees differ by four values on 75 independent flowers."""
    features, classes = load_iris(return_X_y=True)
    train, test, known, wanted = train_test_split(features, classes, test_size=0.5, random_state=0)
    trees = [DecisionTreeClassifier(max_depth=n, random_state=0).fit(train, known) for n in (2, 3)]
    right = [tree.predict_proba(test)[np.arange(len(wanted)), wanted] for tree in trees]
    moved = -np.diff(np.log(np.clip(right, 1e-3, 1)), axis=0)[0]
    found = improvement(moved, np.ones(75), 0.95, resamples=0, examples=np.ones(75, int))
    assert len(np.unique(moved)) < 10
    assert (found.copies, found.effective_groups) == (0, 75)


def test_neighbours_that_are_alike_are_seen_and_independent_ones_are_not():
    source = np.random.default_rng(0)
    moved = [source.normal(size=100) for _ in range(200)]
    seen = [likeness(one, np.ones(100)) > 0 for one in moved]
    assert sum(seen) <= 7  # 2 expected; more than 7: 1 in 1,000
    waves = [one + np.roll(one, 1) for one in moved]  # correlation 0.5
    found = [likeness(one, np.ones(100)) for one in waves]
    assert sum(one > 0 for one in found) >= 190
    assert np.mean(found) == pytest.approx(0.5, abs=0.1)
    assert likeness(np.zeros(50), np.ones(50)) == 0
