"""Useful share and best interval, against each other, small simulations and what is published."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.foresight.runs import best_interval, useful_share

times = st.floats(1e-3, 1e3)


@given(save=times, restart=times, between=times, factor=st.floats(0.3, 3))
def test_no_interval_is_better_than_the_best(save, restart, between, factor):
    best = best_interval(save, restart, between)
    share = useful_share(best, save, restart, between)
    assert 0 <= useful_share(best * factor, save, restart, between) <= share * (1 + 1e-9) < 1


@given(save=times, restart=times, between=times, unit=st.floats(1e-3, 1e3))
def test_the_unit_of_time_does_not_matter(save, restart, between, unit):
    best = best_interval(save, restart, between)
    other = best_interval(save * unit, restart * unit, between * unit)
    assert other == pytest.approx(best * unit, rel=1e-6)
    shares = (
        useful_share(best * scale, save * scale, restart * scale, between * scale)
        for scale in (1, unit)
    )
    assert next(shares) == pytest.approx(next(shares), rel=1e-9)


def test_an_asynchronous_save_costs_no_time_and_loses_more():
    blocking = useful_share(1, 0.1, 0.2, 5)
    assert blocking < useful_share(1, 0.0, 0.2, 5, write=0.1) < useful_share(1, 0.0, 0.2, 5)
    assert useful_share(1, 0, 0.2, 5, write=5) == pytest.approx(useful_share(1, 0, 0.2, 5) / math.e)


def test_the_next_save_waits_for_the_one_before():
    assert best_interval(0.01, 1, 100, write=30) == pytest.approx(29.99)
    assert best_interval(0.01, 1, 100, write=1) == best_interval(0.01, 1, 100)
    assert best_interval(0, 1, 100) == 0
    assert best_interval(0, 1, 100, shortest=0.5) == 0.5


def test_nothing_is_useful_where_no_save_ever_ends():
    assert useful_share(800, 1, 1, 1) == 0
    assert useful_share(10, 1, 1, 1) < 1e-3


def test_what_makes_no_sense_is_refused():
    with pytest.raises(ValueError, match="interval 0, between 1: expected more than 0"):
        useful_share(0, 1, 1, 1)
    with pytest.raises(ValueError, match="save -1"):
        best_interval(-1, 0, 1)
