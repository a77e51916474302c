"""Statistics of single values, of repeated values, and of sets of statistics."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.emulator.services.cloudwatch.metric_store import Point, computed, known

NUMBERS = st.lists(st.integers(-50, 50), min_size=1, max_size=30)


@given(NUMBERS, st.integers(1, 100))
def test_a_percentile_is_the_least_value_that_so_many_do_not_exceed(values, percent):
    found = computed(f"p{percent}", [Point.of(value) for value in values])
    assert found in values
    assert sum(value <= found for value in values) >= percent / 100 * len(values) - 1e-6
    assert sum(value < found for value in values) < percent / 100 * len(values)


@given(NUMBERS)
def test_the_plain_ones(values):
    points = [Point.of(value) for value in values] + [Point.of(values[0], count=2)]
    every = [*values, values[0], values[0]]
    assert computed("Sum", points) == sum(every)
    assert computed("Average", points) == pytest.approx(sum(every) / len(every))
    assert (computed("Minimum", points), computed("Maximum", points)) == (min(every), max(every))
    assert computed("SampleCount", points) == len(every)


def test_of_sets_there_is_no_percentile_and_of_nothing_nothing():
    assert computed("p50", [Point(0, 2, 3, 1, 2)]) is None
    assert computed("Sum", []) is None
    assert [known(name) for name in ("p99.9", "p100", "p101", "tm90", "Sum")] == [
        True, True, False, False, True]  # fmt: skip
