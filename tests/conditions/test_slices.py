"""The worst slice: found among many, and not made up."""

from dataclasses import replace

import numpy as np
import pytest

from conditions.checks.slice_regression import SLICE_REGRESSION
from conditions.improvement import Groups
from conditions.score_tables import SliceSums
from conditions.slices import judge_slices


def sums(name: str, difference, weight, examples: int = 1000) -> SliceSums:
    groups = Groups(difference=difference, weight=weight, largest=None, level=0.05)
    return SliceSums(slice=name, examples=examples, groups=groups)


def part(name: str, mean: float, seed: int = 0, groups: int = 40, examples: int = 1000):
    source = np.random.default_rng(seed)
    weight = source.uniform(20, 30, groups)
    return sums(name, source.normal(mean, 0.1, groups) * weight, weight, examples)


def judge(parts, margin=0.02, confidence=0.95):
    return judge_slices(
        SLICE_REGRESSION, parts, "m", margin, confidence=confidence, min_examples=100, min_groups=10
    )


def test_one_bad_slice_stops_a_model_that_is_better_on_average():
    parts = [part(f"kind={n}", 0.1, seed=n) for n in range(20)] + [part("kind=bad", -0.2, seed=99)]
    check, slices = judge(parts)
    assert not check.passed and check.slice == "kind=bad" and check.high < check.threshold == -0.02
    assert "on kind=bad (-0." in check.reason and "21 slices tested" in check.reason
    assert [one.slice for one in slices if not one.passed] == ["kind=bad"]
    assert judge(parts[:-1])[0].passed
    assert judge([part("kind=a", -0.2)], margin=0.3)[0].passed  # worse by less than the margin


def test_p_values_are_holms():
    from statsmodels.stats.multitest import multipletests

    parts = [part(f"kind={n}", -0.03 - 0.01 * n, seed=n) for n in range(4)]
    chances = [one.groups.compute_p_at_least(-0.02) for one in parts]
    expected = multipletests(chances, alpha=0.05, method="holm")[1]
    assert sorted(one.p_value for one in judge(parts)[1]) == pytest.approx(sorted(expected))


def test_many_good_slices_are_stopped_no_oftener_than_declared():
    """30 trials × 30 slices that are worse by the very margin: without Holm 4 of 5 would fail."""
    stopped = sum(
        not judge([part(f"s={n}", -0.02, seed=1000 * trial + n) for n in range(30)])[0].passed
        for trial in range(30)
    )
    assert stopped <= 5  # 1.5 expected; 6 or more: 1 in 200


def test_small_slices_are_named_and_not_tested_and_none_at_all_is_a_rejection():
    few = part("kind=few", -9, examples=99)
    lumped = part("kind=lumped", -9, groups=8)
    check, slices = judge([part("kind=a", 0), few, lumped])
    assert check.passed and "1 slices tested, 2 too small" in check.reason
    assert {one.slice: one.p_value is None for one in slices} == {
        "kind=a": False, "kind=few": True, "kind=lumped": True}  # fmt: skip
    check, _ = judge([few])
    assert not check.passed and check.value is None and "none of 1 slices" in check.reason


def lucky(seed: int, groups: int) -> SliceSums:
    """Much better on one group in twenty, a little worse on the others; on average, not at all."""
    source = np.random.default_rng(seed)
    weight = source.lognormal(3, 0.5, groups)
    moved = np.where(source.random(groups) < 0.05, 0.95, -0.05) + source.normal(0, 0.02, groups)
    return sums(f"s={seed}", moved * weight, weight)


def test_a_harmless_slice_whose_luck_is_rare_is_stopped_where_it_was_not_drawn():
    """What docs/gate.md says of rare events; with a declared range no such model is stopped."""
    trials = [[lucky(100 * trial + n, 30) for n in range(10)] for trial in range(20)]
    assert sum(not judge(parts, margin=0.0)[0].passed for parts in trials) > 10
    ranged = [[replace(one, groups=replace(one.groups, largest=1.5)) for one in parts]
              for parts in trials]  # fmt: skip
    assert all(judge(parts, margin=0.0)[0].passed for parts in ranged)


def test_a_slice_with_exactly_the_groups_that_are_demanded_is_tested():
    """49 equal groups were 48.99999999999999."""
    source = np.random.default_rng(0)
    for groups in (10, 30, 49, 98, 107, 119):
        weight = np.full(groups, 0.1)
        one = sums("s=a", source.normal(size=groups) * weight, weight)
        _, (found,) = judge_slices(SLICE_REGRESSION, [one], "m", 0.0, confidence=0.95,
                                   min_examples=1, min_groups=groups)  # fmt: skip
        assert found.p_value is not None
