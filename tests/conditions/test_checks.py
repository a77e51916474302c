"""The gate's checks on honest and on broken evidence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conditions.checks.baseline import check_against_baseline
from conditions.checks.threshold import check_against_threshold
from conditions.gate_check import to_finite_number

finite = st.floats(allow_nan=False, allow_infinity=False)


@given(value=finite, bound=finite, margin=st.floats(0, 10))
def test_a_threshold_is_a_bound_that_belongs_to_it_and_a_baseline_must_be_beaten(
    value, bound, margin
):
    evaluation = {"metrics": {"m": {"value": value}}, "baselines": {"b": {"m": bound}}}
    for bound_of_either in (bound, value):
        evaluation["baselines"]["b"]["m"] = bound_of_either
        lower = check_against_threshold(evaluation, "m", "lower", bound_of_either)
        higher = check_against_threshold(evaluation, "m", "higher", bound_of_either)
        passed = (value <= bound_of_either, value >= bound_of_either)
        assert (lower.passed, higher.passed) == passed
        assert (lower.name, higher.name) == ("max_m", "min_m")
        lower = check_against_baseline(evaluation, "m", "lower", "b", margin)
        higher = check_against_baseline(evaluation, "m", "higher", "b", margin)
        passed = (value < bound_of_either - margin, value > bound_of_either + margin)
        assert (lower.passed, higher.passed) == passed


@pytest.mark.parametrize(
    "bad", [None, True, "2.4", float("nan"), float("inf"), -float("inf"), 10**400, [2.4], {}]
)
def test_what_is_no_finite_number_never_passes(bad):
    assert to_finite_number(bad) is None
    broken = [
        {"metrics": {"m": {"value": bad}}, "baselines": {"b": {"m": 1}}},
        {"metrics": {"m": {"value": 1}}, "baselines": {"b": {"m": bad}}},
        {"metrics": {"m": bad}, "baselines": {"b": bad}},
        {"metrics": bad, "baselines": bad},
    ]
    for evaluation in broken:
        for direction in ("lower", "higher"):
            check = check_against_baseline(evaluation, "m", direction, "b", 0.0)
            assert not check.passed and "missing" in check.reason
    assert not check_against_threshold(broken[0], "m", "lower", 1e9).passed
    assert not check_against_threshold(broken[0], "m", "higher", -1e9).passed
