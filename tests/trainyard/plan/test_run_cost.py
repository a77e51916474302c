"""Ranges of time and cost."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import MappingProxyType

import pytest

from tests.trainyard.plan.pictures import HERE, SECONDS, Change, Studio, _run
from trainyard.foresight.interval import Spread
from trainyard.plan.cache_prediction import History, predict
from trainyard.plan.prices import HOURS_A_MONTH, load
from trainyard.plan.run_cost import NOTHING, UNKNOWN, Foreseen, NotForeseen, Range, estimate, total

pytestmark = pytest.mark.long

PRICES = load("us-east-1", HERE / "prices.json")


def costs(
    studio: Studio,
    *overrides: str,
    body=lambda body: None,
    seconds=(),
    prices=PRICES,
    foresight=MappingProxyType({}),
):
    """(step → cost, total, list) of a change; ``seconds``: Train's earlier runs."""
    made = studio.compiled(Change(overrides, body=body)).state
    history = History(None, None)
    for number, each in enumerate(seconds):
        run = _run(json.loads(studio.base.body))
        train = run.steps["Train"]
        longer = replace(train, end_time=train.start_time + timedelta(seconds=each))
        steps = {**run.steps, "Train": longer}
        history.runs.append(replace(run, arn=f"{run.arn}{number}", steps=steps))
    outcomes = predict(made.document, made.name, history, datetime.now(UTC))
    found = estimate(made.document, outcomes, history, prices, foresight)
    return {cost.step: cost for cost in found}, total(made.document, found), found


def test_a_limit_is_instances_times_hours_times_price_and_the_disks(studio: Studio):
    found, whole, _ = costs(studio)
    shard = 4 * 4 * 0.922 + 4 * 200 * 0.1 * 4 / HOURS_A_MONTH
    train = 2 * 12 * 7.09 + 2 * 200 * 0.14 * 12 / HOURS_A_MONTH
    assert found["Shard"].usd_limit == pytest.approx(shard)
    assert found["Train"].usd_limit == pytest.approx(train)
    assert (found["Shard"].estimated, found["Train"].estimated) == (False, True)
    assert found["Train"].seen == UNKNOWN and found["Train"].limit == 12 * 3600
    assert whole.limit == (4 + 12 + 2 + 1) * 3600
    assert (
        whole.usd_limit
        == whole.usd_uncached
        == pytest.approx(sum(cost.usd_limit for cost in found.values()))
    )
    assert found["Verdict"].usd_limit == found["Register"].usd_limit == 0


def test_what_was_seen_is_from_the_shortest_to_the_longest_run_on_the_same_machines(
    studio: Studio,
):
    changed = ("train.loop.learning_rate=0.001",)
    found, whole, _ = costs(studio, *changed, seconds=(3600, 7200, 5400))
    assert (found["Train"].seen.low, found["Train"].seen.high) == (3600, 7200)
    assert found["Train"].runs_seen == 3
    assert found["Train"].usd_seen.low == pytest.approx(2 * 7.09 + 2 * 200 * 0.14 / HOURS_A_MONTH)
    assert found["Train"].usd_seen.high == pytest.approx(2 * found["Train"].usd_seen.low)
    assert whole.seen.low == 3600 + SECONDS["Evaluate"] + SECONDS["Gate"]
    others, _, _ = costs(studio, *changed, "train.instance_count=4", seconds=(3600,))
    assert others["Train"].seen == UNKNOWN


def test_a_step_from_the_cache_costs_nothing(studio: Studio):
    found, whole, _ = costs(studio, seconds=(3600,))
    assert found["Train"].usd_limit == 0 and found["Train"].usd_seen == NOTHING
    assert whole.usd_limit == 0 and whole.limit == 0
    assert whole.usd_uncached > 170


def test_spot_costs_from_a_tenth_to_all_of_it(studio: Studio):
    spot = ("train.spot=true", "train.max_wait_minutes=900", "train.loop.seed=1")
    found, _, _ = costs(studio, *spot, seconds=(3600,))
    disks = 2 * 200 * 0.14 / HOURS_A_MONTH
    assert found["Train"].spot
    assert found["Train"].usd_seen.low == pytest.approx(0.1 * 2 * 7.09 + disks)
    assert found["Train"].usd_seen.high == pytest.approx(2 * 7.09 + disks)
    assert found["Train"].usd_limit == costs(studio)[0]["Train"].usd_limit


def test_a_warm_pool_costs_until_its_end(studio: Studio):
    found, _, _ = costs(studio, "train.keep_alive_minutes=60")
    without = costs(studio)[0]["Train"]
    assert found["Train"].usd_limit == pytest.approx(without.usd_limit * 13 / 12)
    assert found["Train"].limit == without.limit


def test_a_machine_without_a_price_has_no_cost(studio: Studio):
    found, whole, _ = costs(studio, "train.instance_type=ml.p5.48xlarge")
    assert found["Train"].unpriced == "ml.p5.48xlarge" and found["Train"].usd_limit is None
    assert whole.usd_limit is None and whole.limit == 19 * 3600


def test_a_job_without_a_limit_has_no_upper_bound(studio: Studio):
    def unlimited(body: dict) -> None:
        del body["Steps"][0]["Arguments"]["StoppingCondition"]

    found, whole, _ = costs(studio, body=unlimited)
    assert found["Shard"].limit is None and whole.limit is None and whole.usd_limit is None


@pytest.mark.parametrize(
    ("field", "machines"),
    [
        (("StoppingCondition",), "4 × ml.m5.4xlarge"),
        (("StoppingCondition", "MaxRuntimeInSeconds"), "4 × ml.m5.4xlarge"),
        (("ProcessingResources",), ""),
        (("ProcessingResources", "ClusterConfig", "InstanceCount"), ""),
    ],
)
def test_what_only_a_run_knows_is_not_known_of_a_cost(field, machines, studio: Studio):
    def later(body: dict) -> None:
        inside = body["Steps"][0]["Arguments"]
        for key in field[:-1]:
            inside = inside[key]
        inside[field[-1]] = {"Get": "Execution.PipelineName"}

    found, whole, _ = costs(studio, body=later)
    assert found["Shard"].machines == machines
    assert found["Shard"].limit is None and whole.limit is None and whole.usd_limit is None


HOURS = Foreseen(seconds=Spread(3600, 7200, 14400), grounds="20,000 steps of 0.36 s")


def test_what_is_foreseen_counts_where_nobody_saw_the_step(studio: Studio):
    found, _, _ = costs(studio, foresight={"Train": HOURS})
    train = found["Train"]
    assert train.is_foreseen and train.expected_seconds == Range(3600, 14400)
    assert train.usd_expected.low == pytest.approx(2 * 7.09 + 2 * 200 * 0.14 / HOURS_A_MONTH)
    assert train.usd_expected.high == pytest.approx(4 * train.usd_expected.low)
    assert train.seen == UNKNOWN  # it was not seen for that
    assert not found["Shard"].is_foreseen and found["Shard"].expected_seconds == UNKNOWN


def test_what_was_seen_goes_before_what_is_foreseen(studio: Studio):
    changed = ("train.loop.learning_rate=0.001",)
    found, whole, _ = costs(studio, *changed, seconds=(5000,), foresight={"Train": HOURS})
    train = found["Train"]
    assert train.expected_seconds == Range(5000, 5000) and train.usd_expected == train.usd_seen
    assert train.foreseen == HOURS.seconds  # and stands beside
    assert whole.expected == whole.seen


def test_nothing_takes_longer_than_it_may_though_it_is_foreseen_to(studio: Studio):
    year = Foreseen(seconds=Spread(3e6, 4e6, 5e6), grounds="too many steps")
    train = costs(studio, foresight={"Train": year})[0]["Train"]
    assert train.expected_seconds == Range(12 * 3600, 12 * 3600)
    assert train.usd_expected.high == pytest.approx(train.usd_limit)


def test_of_a_step_from_the_cache_and_of_what_cannot_be_foreseen_nothing_is(studio: Studio):
    cached = costs(studio, seconds=(3600,), foresight={"Train": HOURS})[0]["Train"]
    assert cached.foreseen is None and cached.expected_seconds == NOTHING
    unknown = costs(studio, foresight={"Train": NotForeseen("it has no GPU")})[0]["Train"]
    assert unknown.foreseen is None and unknown.expected_seconds == UNKNOWN
