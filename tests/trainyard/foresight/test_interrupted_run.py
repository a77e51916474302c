"""The closed form of a run: against a simulation of what it describes, and what follows from it."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.foresight.cloud_machines import How, Machines, make_machines
from trainyard.foresight.interrupted_run import (
    compute_best_interval,
    compute_useful_share,
    predict_interrupted_run,
)
from trainyard.foresight.interval import Spread

times = st.floats(1e-3, 1e3)


@given(times, times, times, st.floats(0.3, 3), st.floats(1e-3, 1e3))
def test_no_interval_is_better_than_the_best_in_whatever_unit(save, restart, between, factor, unit):
    best = compute_best_interval(save, restart, between)
    share = compute_useful_share(best, save, restart, between)
    assert (
        0 <= compute_useful_share(best * factor, save, restart, between) <= share * (1 + 1e-9) < 1
    )
    given = [one * unit for one in (save, restart, between)]
    assert compute_best_interval(*given) == pytest.approx(best * unit, rel=1e-6)
    assert compute_useful_share(best * unit, *given) == pytest.approx(share, rel=1e-9)


def test_an_asynchronous_save_costs_no_time_loses_more_and_waits_for_the_one_before():
    blocking = compute_useful_share(1, 0.1, 0.2, 5)
    assert (
        blocking
        < compute_useful_share(1, 0.0, 0.2, 5, write=0.1)
        < compute_useful_share(1, 0.0, 0.2, 5)
    )
    assert compute_useful_share(1, 0, 0.2, 5, write=5) == pytest.approx(
        compute_useful_share(1, 0, 0.2, 5) / math.e
    )
    assert compute_best_interval(0.01, 1, 100, write=30) == pytest.approx(29.99)
    assert compute_best_interval(0.01, 1, 100, write=1) == compute_best_interval(0.01, 1, 100)
    assert compute_best_interval(0, 1, 100) == 0
    assert compute_best_interval(0, 1, 100, shortest=0.5) == 0.5


def test_nothing_is_useful_where_no_save_ever_ends_and_what_makes_no_sense_is_refused():
    assert compute_useful_share(800, 1, 1, 1) == 0
    assert compute_useful_share(10, 1, 1, 1) < 1e-3
    with pytest.raises(ValueError, match="interval 0, between 1: expected more than 0"):
        compute_useful_share(0, 1, 1, 1)
    with pytest.raises(ValueError, match="save -1"):
        compute_best_interval(-1, 0, 1)


STEP = Spread(9, 10, 11)


def sure(value: float) -> Spread:
    return Spread(value, value, value)


def make_rented_machines(between: float) -> Machines:
    prices = {"usd_per_hour": sure(10), "between": sure(between), "wait": sure(200)}
    return Machines(count=1, gpus_per_node=1, **prices)


def p5(count: int, how: How) -> Machines:
    return make_machines("ml.p5.48xlarge", count, how, region="us-west-2", usd_hour=63.3)


def simulate_runs(
    work: float, interval: float, between: float, start: float
) -> tuple[float, float]:
    """Return the mean hours and interruptions of runs that are followed from one to the next."""
    random = np.random.default_rng(0)
    hours, stops = [], []
    for _ in range(2000):
        left, taken, count = work, 200 + start, 0
        while (up := random.exponential(between * 3600)) < left:
            left -= up // interval * interval
            taken += up + 200 + start
            count += 1
        hours.append((taken + left) / 3600)
        stops.append(count)
    return float(np.mean(hours)), float(np.mean(stops))


@pytest.mark.parametrize(("between", "interval"), [(0.5, 600), (0.5, 1e6), (3, 1800), (1e6, 1800)])
def test_a_run_takes_as_long_as_simulated_ones_do_on_average(
    monkeypatch: pytest.MonkeyPatch, between: float, interval: float
):
    monkeypatch.setattr("trainyard.foresight.interrupted_run.START", sure(100))
    never = predict_interrupted_run(
        make_rented_machines(0.001), 1, sure(1), 10**6, interval_seconds=3600
    )  # it cannot save
    assert (never.hours, never.usd, never.useful) == (sure(math.inf), sure(math.inf), 0)
    run = predict_interrupted_run(
        make_rented_machines(between), 1e-9, sure(1), 3600, interval_seconds=interval
    )
    hours, stops = simulate_runs(3600, interval, between, 100)
    assert run.hours.p50 == pytest.approx(hours, rel=0.05)
    assert run.interruptions.p50 == pytest.approx(stops, rel=0.08, abs=1e-4)
    # the machines are charged while they are there: not for the waits
    waits = 200 / 3600 * (1 + run.interruptions.p50)
    assert run.charged_hours.p50 == pytest.approx(run.hours.p50 - waits)
    assert run.usd.p50 == pytest.approx(10 * run.charged_hours.p50)


def test_a_training_takes_its_steps_and_somewhat_more():
    run = predict_interrupted_run(p5(4, "on demand"), 7e9, STEP, 30_000)
    hours = 30_000 * 10 / 3600
    assert hours < run.hours.p50 < 1.1 * hours
    assert run.hours.p10 < run.hours.p50 < run.hours.p90
    assert run.usd.p50 == pytest.approx(run.hours.p50 * 4 * 63.3, rel=0.02)
    assert 0.93 < run.useful < 1
    assert run.save_stall == pytest.approx(84 / 32 / 12)  # a 32nd of 84 GB at 12 GB/s to the host
    assert run == predict_interrupted_run(p5(4, "on demand"), 7e9, STEP, 30_000)


def test_it_saves_as_often_as_is_best_on_its_machines():
    demand, spot = (
        predict_interrupted_run(p5(4, how), 7e9, STEP, 1000) for how in ("on demand", "spot")
    )
    assert spot.save_interval < demand.save_interval
    between = p5(4, "on demand").between.p50 * 3600
    best = compute_best_interval(
        demand.save_stall + 84 / 4, 0, between
    )  # a quarter at 1 GB/s to disks
    assert demand.save_interval == pytest.approx(best)
    given = predict_interrupted_run(
        p5(4, "spot"), 7e9, STEP, 1000, interval_seconds=1234, saved_bytes=48e9
    )
    assert (given.save_interval, given.save_stall) == (1234, pytest.approx(48 / 32 / 12))
    assert (
        predict_interrupted_run(p5(4, "spot"), 1e3, Spread(900, 1000, 1100), 10).save_interval
        >= 1000
    )


@pytest.mark.parametrize(("nodes", "how"), [(2048, "on demand"), (2048, "spot"), (1, "spot")])
def test_it_does_not_save_all_the_time(nodes: int, how: How):
    """405B: on 2,048 nodes each GPU copies 0.3 GB, which once was all that a save cost."""
    run = predict_interrupted_run(p5(nodes, how), 405e9, STEP, 1000)
    takes = run.save_stall + 12 * 405 / nodes
    assert run.save_interval >= takes
    assert how == "spot" or run.save_interval > 50 * takes


def test_a_checkpoint_of_adapters_is_theirs_alone_and_the_model_is_loaded_beside_it():
    there = p5(1, "on demand")
    adapters, whole = (
        predict_interrupted_run(there, 70e9, sure(1e-3), 1, interval_seconds=1e4, saved_bytes=saved)
        for saved in (1e9, None)
    )
    # a load of 2 bytes a parameter or of 12, then a save; with every spread the same
    apart = 10 * 70 + (12 * 70 - 1) * (1 + 1 / 8 / 12)
    assert (whole.hours.p50 - adapters.hours.p50) * 3600 == pytest.approx(apart, rel=0.02)
