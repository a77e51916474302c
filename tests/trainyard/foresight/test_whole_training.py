"""A whole training: what follows from the machines, and what is given."""

import pytest

from trainyard.foresight.cloud_machines import How, machines
from trainyard.foresight.interrupted_run import best_interval
from trainyard.foresight.interval import Spread
from trainyard.foresight.whole_training import foresee

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
    best = best_interval(demand.saving.stall + demand.saving.write, 0, between)
    assert demand.saving.interval == pytest.approx(best)
    given = foresee(there, "spot", 7e9, STEP, 1000, interval_seconds=1234, saved_bytes=48e9)
    assert (given.saving.interval, given.saving.write) == (1234, 12)
    assert foresee(there, "spot", 1e3, Spread(900, 1000, 1100), 10).saving.interval >= 1000


@pytest.mark.parametrize(("nodes", "how"), [(2048, "on demand"), (2048, "spot"), (1, "spot")])
def test_it_does_not_save_all_the_time(nodes: int, how: How):
    """405B: on 2,048 nodes each GPU copies 0.3 GB, which once was all that a save cost."""
    saving = foresee(machines("ml.p5.48xlarge", nodes, "us-east-1"), how, 405e9, STEP, 1000).saving
    takes = saving.stall + saving.write
    assert saving.interval >= takes
    assert how == "spot" or saving.interval > 50 * takes


def test_a_checkpoint_of_adapters_is_theirs_alone_and_the_model_is_loaded_beside_it():
    there = machines("ml.p5.48xlarge", 1, "us-east-1")
    adapters, whole = (
        foresee(there, "on demand", 70e9, STEP, 100, saved_bytes=saved) for saved in (1e9, None)
    )
    assert adapters.saving.write == pytest.approx(1)
    loads = [one.start_seconds.p10 for one in (adapters, whole)]
    assert loads[1] - loads[0] == pytest.approx(10 * 70)  # 2 bytes a parameter, 12 where all train


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
