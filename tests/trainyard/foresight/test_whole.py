"""A whole training: what follows from the machines, and what is given."""

import pytest

from trainyard.foresight.goodput import best_interval
from trainyard.foresight.machines import machines
from trainyard.foresight.spread import Spread
from trainyard.foresight.whole import foresee

STEP = Spread(9, 10, 11)


def test_a_training_takes_its_steps_and_somewhat_more():
    there = machines("ml.p5.48xlarge", 4, "us-west-2")
    whole = foresee(there, "on demand", 7e9, STEP, 30_000)
    hours = 30_000 * 10 / 3600
    assert hours < whole.outcome.hours.p50 < 1.1 * hours
    assert whole.outcome.usd.p50 == pytest.approx(
        whole.outcome.hours.p50 * there.usd_per_hour, rel=0.02
    )
    assert 0.93 < whole.outcome.useful < 1
    # 84 GB: a 32nd at 12 GB/s to the host, a quarter at 1 GB/s to disks
    assert whole.saving.stall == pytest.approx(84 / 32 / 12)
    assert whole.saving.write == pytest.approx(21)


def test_it_saves_as_often_as_is_best_on_its_machines():
    there = machines("ml.p5.48xlarge", 4, "us-west-2")
    demand, spot = (foresee(there, how, 7e9, STEP, 1000) for how in ("on demand", "spot"))
    assert spot.saving.interval < demand.saving.interval
    between = demand.markets[0].between.p50 * 3600
    best = best_interval(demand.saving.stall, 0, between, demand.saving.write)
    assert demand.saving.interval == pytest.approx(best)
    given = foresee(there, "spot", 7e9, STEP, 1000, interval_seconds=1234, saved_bytes=48e9)
    assert (given.saving.interval, given.saving.write) == (1234, 12)
    assert foresee(there, "spot", 1e3, Spread(900, 1000, 1100), 10).saving.interval >= 1000


def test_spot_is_cheaper_and_less_certain_and_a_mixture_is_between():
    there = machines("ml.p5.48xlarge", 1, "us-west-2")
    found = {
        how: foresee(there, how, 1e9, STEP, 20_000).outcome
        for how in ("on demand", "spot", "mixture")
    }
    demand, spot, mixture = found.values()
    assert spot.usd.p50 < mixture.usd.p50 <= demand.usd.p90
    assert mixture.hours.p90 < spot.hours.p90
    assert spot.hours.p90 - spot.hours.p10 > demand.hours.p90 - demand.hours.p10
    assert spot.fell_back == demand.fell_back == 0 < mixture.fell_back
