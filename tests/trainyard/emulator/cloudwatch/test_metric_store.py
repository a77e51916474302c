"""Statistics of single values, of repeated values, and of sets of statistics."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.emulator.cloudwatch.metric_store import (
    Point,
    compute_statistic,
    is_supported_statistic,
)

NUMBERS = st.lists(st.integers(-50, 50), min_size=1, max_size=30)


@given(NUMBERS, st.integers(1, 100))
def test_a_percentile_is_the_least_value_that_so_many_do_not_exceed(values, percent):
    found = compute_statistic(f"p{percent}", [Point.from_value(value) for value in values])
    assert found in values
    assert sum(value <= found for value in values) >= percent / 100 * len(values) - 1e-6
    assert sum(value < found for value in values) < percent / 100 * len(values)


@given(NUMBERS)
def test_the_plain_ones(values):
    points = [Point.from_value(value) for value in values] + [Point.from_value(values[0], count=2)]
    every = [*values, values[0], values[0]]
    assert compute_statistic("Sum", points) == sum(every)
    assert compute_statistic("Average", points) == pytest.approx(sum(every) / len(every))
    assert (compute_statistic("Minimum", points), compute_statistic("Maximum", points)) == (
        min(every),
        max(every),
    )
    assert compute_statistic("SampleCount", points) == len(every)


def test_of_sets_there_is_no_percentile_and_of_nothing_nothing():
    assert compute_statistic("p50", [Point(0, 2, 3, 1, 2)]) is None
    assert compute_statistic("Sum", []) is None
    assert [is_supported_statistic(name) for name in ("p99.9", "p100", "p101", "tm90", "Sum")] == [
        True, True, False, False, True]  # fmt: skip
