"""Ranges of time and cost."""

import json
import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

import pytest

from tests.trainyard.plan.pictures import HERE, SECONDS, Change, Studio, _run
from trainyard.foresight.interval import Spread
from trainyard.plan.cache_prediction import History, predict_outcomes
from trainyard.plan.prices import HOURS_A_MONTH, load_prices
from trainyard.plan.run_cost import (
    NOTHING,
    UNKNOWN,
    Cost,
    Foreseen,
    Jobs,
    NotForeseen,
    Range,
    compute_total,
    estimate_costs,
    parse_tuning_jobs,
)

pytestmark = pytest.mark.long

PRICES = load_prices("us-east-1", HERE / "prices.json")


def costs(
    studio: Studio,
    *overrides: str,
    body=lambda body: None,
    seconds=(),
    prices=PRICES,
    foresight=MappingProxyType({}),
):
    """(step → cost, total, list) of a change; ``seconds``: Train's earlier runs."""
    made = studio.compile_change(Change(overrides, body=body)).state
    history = History(None, None)
    for number, each in enumerate(seconds):
        run = _run(json.loads(studio.base.body))
        train = run.steps["Train"]
        longer = replace(train, end_time=train.start_time + timedelta(seconds=each))
        steps = {**run.steps, "Train": longer}
        history.runs.append(replace(run, arn=f"{run.arn}{number}", steps=steps))
    outcomes = predict_outcomes(made.document, made.name, history, datetime.now(UTC))
    found = estimate_costs(made.document, outcomes, history, prices, foresight)
    return {cost.step: cost for cost in found}, compute_total(made.document, found), found


DISKS = 2 * 200 * 0.14 / HOURS_A_MONTH
"""An hour of Train's disks, in dollars."""
CHANGED = ("train.loop.learning_rate=0.001",)
HOURS = Foreseen(seconds=Spread(3600, 7200, 14400), grounds="20,000 steps of 0.36 s")


def test_a_limit_is_instances_times_hours_times_price_and_the_disks(studio: Studio):
    found, whole, _ = costs(studio)
    shard, train = found["Shard"], found["Train"]
    assert shard.usd_limit == pytest.approx(4 * 4 * 0.922 + 4 * 200 * 0.1 * 4 / HOURS_A_MONTH)
    assert train.usd_limit == pytest.approx(12 * (2 * 7.09 + DISKS))
    assert (shard.estimated, train.estimated) == (False, True)
    assert train.seen == UNKNOWN and train.limit == 12 * 3600
    assert whole.limit == (4 + 12 + 2 + 1) * 3600
    in_all = pytest.approx(sum(cost.usd_limit for cost in found.values()))
    assert whole.usd_limit == whole.usd_uncached == in_all
    assert found["Verdict"].usd_limit == found["Register"].usd_limit == 0


def test_what_was_seen_is_from_the_shortest_to_the_longest_run_on_the_same_machines(studio: Studio):
    found, whole, _ = costs(studio, *CHANGED, seconds=(3600, 7200, 5400))
    train = found["Train"]
    assert train.seen == Range(3600, 7200) and train.runs_seen == 3
    assert train.usd_seen.low == pytest.approx(2 * 7.09 + DISKS)
    assert train.usd_seen.high == pytest.approx(2 * train.usd_seen.low)
    assert whole.seen.low == 3600 + SECONDS["Evaluate"] + SECONDS["Gate"]
    others, _, _ = costs(studio, *CHANGED, "train.instance_count=4", seconds=(3600,))
    assert others["Train"].seen == UNKNOWN


def test_a_step_from_the_cache_costs_nothing_and_is_not_foreseen(studio: Studio):
    found, whole, _ = costs(studio, seconds=(3600,), foresight={"Train": HOURS})
    train = found["Train"]
    assert train.usd_limit == 0 and train.usd_seen == NOTHING
    assert train.foreseen is None and train.expected_seconds == NOTHING
    assert whole.usd_limit == 0 and whole.limit == 0
    assert whole.usd_uncached > 170


def test_spot_costs_from_a_tenth_to_all_of_it(studio: Studio):
    spot = ("train.spot=true", "train.max_wait_minutes=900", "train.loop.seed=1")
    train = costs(studio, *spot, seconds=(3600,))[0]["Train"]
    assert train.spot
    assert train.usd_seen.low == pytest.approx(0.1 * 2 * 7.09 + DISKS)
    assert train.usd_seen.high == pytest.approx(2 * 7.09 + DISKS)
    assert train.usd_limit == costs(studio)[0]["Train"].usd_limit


def test_a_warm_pool_costs_until_its_end(studio: Studio):
    train, without = (
        costs(studio, *given)[0]["Train"] for given in (("train.keep_alive_minutes=60",), ())
    )
    assert train.usd_limit == pytest.approx(without.usd_limit * 13 / 12)
    assert train.limit == without.limit


def test_a_machine_without_a_price_has_no_cost(studio: Studio):
    found, whole, _ = costs(studio, "train.instance_type=ml.p5.48xlarge")
    assert found["Train"].unpriced == "ml.p5.48xlarge" and found["Train"].usd_limit is None
    assert whole.usd_limit is None and whole.limit == 19 * 3600


LATER = {"Get": "Execution.PipelineName"}


@pytest.mark.parametrize(
    ("field", "value", "machines"),
    [
        (("StoppingCondition",), None, "4 × ml.m5.4xlarge"),
        (("StoppingCondition",), LATER, "4 × ml.m5.4xlarge"),
        (("StoppingCondition", "MaxRuntimeInSeconds"), LATER, "4 × ml.m5.4xlarge"),
        (("ProcessingResources",), LATER, ""),
        (("ProcessingResources", "ClusterConfig", "InstanceCount"), LATER, ""),
    ],
)
def test_where_no_limit_stands_or_only_a_run_knows_it_there_is_no_upper_bound(
    field: tuple[str, ...], value: dict | None, machines: str, studio: Studio
):
    def change_field(body: dict) -> None:
        inside = body["Steps"][0]["Arguments"]
        for key in field[:-1]:
            inside = inside[key]
        inside.pop(field[-1]) if value is None else inside.update({field[-1]: value})

    found, whole, _ = costs(studio, body=change_field)
    assert found["Shard"].machines == machines
    assert found["Shard"].limit is None and whole.limit is None and whole.usd_limit is None


def test_what_is_foreseen_counts_where_nobody_saw_the_step(studio: Studio):
    found, _, _ = costs(studio, foresight={"Train": HOURS})
    train = found["Train"]
    assert train.is_predicted and train.expected_seconds == Range(3600, 14400)
    assert train.usd_expected.low == pytest.approx(2 * 7.09 + DISKS)
    assert train.usd_expected.high == pytest.approx(4 * train.usd_expected.low)
    assert train.seen == UNKNOWN  # it was not seen for that
    assert not found["Shard"].is_predicted and found["Shard"].expected_seconds == UNKNOWN
    unknown = costs(studio, foresight={"Train": NotForeseen("it has no GPU")})[0]["Train"]
    assert unknown.foreseen is None and unknown.expected_seconds == UNKNOWN


def test_what_was_seen_goes_before_what_is_foreseen(studio: Studio):
    found, whole, _ = costs(studio, *CHANGED, seconds=(5000,), foresight={"Train": HOURS})
    train = found["Train"]
    assert train.expected_seconds == Range(5000, 5000) and train.usd_expected == train.usd_seen
    assert train.foreseen == HOURS.seconds  # and stands beside
    assert whole.expected == whole.seen


def test_nothing_takes_longer_than_it_may_though_it_is_foreseen_to(studio: Studio):
    year = Foreseen(seconds=Spread(3e6, 4e6, 5e6), grounds="too many steps")
    train = costs(studio, foresight={"Train": year})[0]["Train"]
    assert train.expected_seconds == Range(12 * 3600, 12 * 3600)
    assert train.usd_expected.high == pytest.approx(train.usd_limit)


# A tuning step: at most so many jobs, each as long as it may take.


def tuning(**limits: Any) -> Cost:
    machine = {"InstanceType": "ml.g5.12xlarge", "InstanceCount": 2, "VolumeSizeInGB": 0}
    arguments = {
        "HyperParameterTuningJobConfig": {"Strategy": "Random", "ResourceLimits": limits},
        "TrainingJobDefinition": {
            "ResourceConfig": machine,
            "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
        },
    }
    count = {"Name": "Count", "Type": "Integer", "DefaultValue": 7}
    step = {"Name": "Tune", "Type": "Tuning", "Arguments": arguments}
    document = {"Version": "2020-12-01", "Parameters": [count], "Steps": [step]}
    history = History(None, None)
    [cost] = estimate_costs(
        document, predict_outcomes(document, "p", history, datetime.now(UTC)), history, PRICES
    )
    return cost


def test_a_tuning_costs_at_most_all_its_jobs_and_takes_as_long_as_their_turns():
    cost = tuning(MaxNumberOfTrainingJobs={"Get": "Parameters.Count"}, MaxParallelTrainingJobs=3)
    assert cost.machines == "at most 7 jobs × 2 × ml.g5.12xlarge"
    assert cost.usd_limit == pytest.approx(7 * 2 * 7.09)
    assert cost.limit == 3 * 3600


def test_the_tuning_jobs_own_limit_counts():
    cost = tuning(MaxNumberOfTrainingJobs=7, MaxParallelTrainingJobs=3, MaxRuntimeInSeconds=1800)
    assert cost.limit == 1800
    assert cost.usd_limit == pytest.approx(3 * 0.5 * 2 * 7.09)


def test_where_only_a_run_can_tell_a_tunings_jobs_nothing_is_told():
    assert tuning(MaxNumberOfTrainingJobs=LATER, MaxParallelTrainingJobs=3).limit is None
    assert tuning(MaxParallelTrainingJobs=3).usd_limit is None


def test_a_grid_has_as_many_jobs_as_combinations():
    ranges = [{"Name": "a", "Values": ["1", "2"]}, {"Name": "b", "Values": ["1", "2", "3"]}]
    config = {
        "Strategy": "Grid",
        "ResourceLimits": {"MaxParallelTrainingJobs": 4},
        "ParameterRanges": {"CategoricalParameterRanges": ranges},
    }
    assert parse_tuning_jobs(config) == Jobs(6, 4, math.inf)
