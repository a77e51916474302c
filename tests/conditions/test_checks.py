"""The gate's checks on honest and on broken evidence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conditions.checks.baseline import against_baseline
from conditions.checks.threshold import against_threshold
from conditions.gate_check import number

EVALUATION = {
    "metrics": {"bits_per_byte": {"value": 2.412}, "accuracy": {"value": 0.56}},
    "baselines": {"bigram": {"bits_per_byte": 3.4, "accuracy": 0.39}},
}
finite = st.floats(allow_nan=False, allow_infinity=False)


def test_the_reason_is_a_sentence_for_people():
    check = against_threshold(EVALUATION, "bits_per_byte", "lower", 0.1)
    assert check.reason == "bits_per_byte is 2.412, the recipe demands at most 0.1"
    check = against_baseline(EVALUATION, "bits_per_byte", "lower", "bigram", 1.5)
    assert (check.passed, check.threshold) == (False, pytest.approx(1.9))
    assert check.reason == (
        "bits_per_byte is 2.412, it must beat the bigram baseline's 3.4 by at least 1.5"
    )


@given(value=finite, threshold=finite)
def test_a_threshold_is_a_bound_that_belongs_to_it(value, threshold):
    evaluation = {"metrics": {"m": {"value": value}}}
    lower = against_threshold(evaluation, "m", "lower", threshold)
    higher = against_threshold(evaluation, "m", "higher", threshold)
    assert (lower.passed, higher.passed) == (value <= threshold, value >= threshold)
    assert (lower.name, higher.name) == ("max_m", "min_m")


@given(value=finite, baseline=finite, margin=st.floats(0, 10))
def test_a_baseline_must_be_beaten_not_matched(value, baseline, margin):
    evaluation = {"metrics": {"m": {"value": value}}, "baselines": {"b": {"m": baseline}}}
    lower = against_baseline(evaluation, "m", "lower", "b", margin)
    higher = against_baseline(evaluation, "m", "higher", "b", margin)
    assert (lower.passed, higher.passed) == (value < baseline - margin, value > baseline + margin)


@pytest.mark.parametrize(
    "bad", [None, True, "2.4", float("nan"), float("inf"), -float("inf"), 10**400, [2.4], {}]
)
def test_what_is_no_finite_number_never_passes(bad):
    assert number(bad) is None
    broken = [
        {"metrics": {"m": {"value": bad}}, "baselines": {"b": {"m": 1}}},
        {"metrics": {"m": {"value": 1}}, "baselines": {"b": {"m": bad}}},
        {"metrics": {"m": bad}, "baselines": {"b": bad}},
        {"metrics": bad, "baselines": bad},
    ]
    for evaluation in broken:
        for direction in ("lower", "higher"):
            check = against_baseline(evaluation, "m", direction, "b", 0.0)
            assert not check.passed and "missing" in check.reason
    assert not against_threshold(broken[0], "m", "lower", 1e9).passed
    assert not against_threshold(broken[0], "m", "higher", -1e9).passed
