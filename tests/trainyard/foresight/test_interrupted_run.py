"""Simulated runs against the formula, and what must hold of them whatever is simulated."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainyard.foresight.interrupted_run import (
    MANY,
    Market,
    Saving,
    best_interval,
    foresee,
    sample,
    useful_share,
)
from trainyard.foresight.interval import Spread

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


def sure(value: float) -> Spread:
    return Spread(value, value, value)


NOW = sure(0)


def market(between: float, usd: float = 10, wait: Spread = NOW, **more: float) -> Market:
    return Market(name="m", usd_per_hour=sure(usd), between=sure(between), wait=wait, **more)


@pytest.mark.parametrize("write", [0, 120])
@pytest.mark.parametrize(("between", "restart"), [(0.5, 600), (3, 600), (24, 2400)])
def test_a_long_run_has_the_formulas_share(between: float, restart: float, write: float):
    interval = best_interval(30, restart, between * 3600, write)
    saving = Saving(interval=interval, stall=30, write=write)
    there = market(between, wait=sure(restart / 2))
    run = foresee(sure(between * 3.6e5), [there], saving, sure(restart / 2), draws=60)
    exact = useful_share(interval, 30, restart, between * 3600, write)
    assert run.useful == pytest.approx(exact, abs=0.01)
    # the machines are charged while they are there: not for half of the restart
    unpaid = run.interruptions.p50 * restart / 2 / 3600
    assert run.usd.p50 / 10 == pytest.approx(run.hours.p50 - unpaid, rel=0.02)


def test_without_interruptions_a_run_takes_its_work_and_its_saves():
    saving = Saving(interval=1000, stall=10, write=50)
    run = foresee(sure(3600), [market(1e12, wait=sure(300))], saving, sure(100))
    assert run.hours == sure((300 + 100 + 3600 + 4 * 10 + 50) / 3600)
    assert run.usd.p50 == pytest.approx(10 * (100 + 3600 + 40 + 50) / 3600)
    assert (run.interruptions, run.finished, run.fell_back) == (sure(0), 1, 0)


def test_a_run_that_cannot_save_before_the_next_interruption_never_finishes():
    run = foresee(sure(1e6), [market(0.001)], Saving(interval=3600, stall=10), sure(0), draws=10)
    assert (run.hours, run.usd, run.finished, run.useful) == (sure(math.inf), sure(math.inf), 0, 0)


def test_many_interruptions_are_not_simulated_one_by_one_and_it_makes_no_difference():
    saving = Saving(interval=300, stall=20, write=10)

    def hours(interruptions: float) -> float:
        work = interruptions * 3600 * useful_share(300, 20, 400, 3200, 10)
        run = foresee(sure(work), [market(3200 / 3600, wait=sure(100))], saving, sure(300))
        return run.hours.p50 / interruptions

    assert hours(0.99 * MANY) == pytest.approx(hours(1.01 * MANY), rel=0.01)
    assert hours(100 * MANY) == pytest.approx(hours(1.01 * MANY))


def test_a_market_that_interrupts_all_the_time_is_left():
    saving = Saving(interval=3600, stall=10)
    markets = [market(0.01, usd=1, patience=60), market(1e9)]
    both = foresee(sure(1e5), markets, saving, sure(0), draws=20)
    assert (both.fell_back, both.finished) == (1, 1)
    assert both.interruptions.p50 >= MANY


def test_out_of_patience_the_rest_is_done_on_the_next_market():
    saving = Saving(interval=100, stall=0)
    spot = market(1, usd=1, wait=Spread(60, 600, 7200), patience=3600)
    demand = market(1e9, usd=10)
    alone = foresee(sure(36e4), [spot], saving, sure(0))
    both = foresee(sure(36e4), [spot, demand], saving, sure(0))
    dear = foresee(sure(36e4), [demand], saving, sure(0))
    assert alone.fell_back == dear.fell_back == 0 and both.fell_back > 0.9
    assert alone.usd.p50 < both.usd.p50 < dear.usd.p50
    assert dear.hours.p50 < both.hours.p50 < alone.hours.p50


def test_the_first_wait_can_be_too_long_as_well():
    spot = market(1, usd=1, wait=sure(7200), patience=600)
    both = foresee(
        sure(3600), [spot, market(1e9)], Saving(interval=100, stall=0), sure(0), draws=50
    )
    assert (both.fell_back, both.hours.p50) == (1, pytest.approx((600 + 3600) / 3600))
    assert both.usd.p50 == pytest.approx(10)


@settings(max_examples=25, deadline=None)
@given(
    work=st.floats(10, 1e6),
    between=st.floats(0.05, 1e3),
    stall=st.floats(0, 100),
    write=st.floats(0, 100),
    seed=st.integers(0, 1000),
)
def test_a_run_is_never_shorter_than_its_work_and_the_same_twice(work, between, stall, write, seed):
    saving = Saving(interval=max(60, write), stall=stall, write=write)
    machines = [market(between, wait=Spread(10, 60, 600))]
    run = foresee(sure(work), machines, saving, Spread(10, 20, 60), seed=seed, draws=40)
    assert run.hours.p10 > work / 3600
    assert run.hours.p10 <= run.hours.p50 <= run.hours.p90
    assert 0 <= run.useful < 1
    assert run == foresee(sure(work), machines, saving, Spread(10, 20, 60), seed=seed, draws=40)


def test_draws_have_the_deciles_that_they_are_drawn_from():
    random = np.random.default_rng(0)
    for spread in (Spread(1, 2, 10), Spread(5, 6, 6.5), Spread(0, 1, 4)):
        found = np.quantile(sample(spread, random, 200_000), (0.1, 0.5, 0.9))
        assert found == pytest.approx((spread.p10, spread.p50, spread.p90), rel=0.03, abs=0.02)


def test_an_interval_of_nothing_is_refused():
    with pytest.raises(ValueError, match="interval 0: expected more than 0 seconds"):
        foresee(sure(1), [market(1)], Saving(interval=0, stall=1), sure(1))
