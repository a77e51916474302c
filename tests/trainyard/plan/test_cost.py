"""Ranges of time and cost, and the budget."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from pipelines.recipe.config import Budget
from tests.trainyard.plan.pictures import HERE, SECONDS, Change, Studio, _run
from trainyard.plan.caching import predict
from trainyard.plan.cost import NOTHING, UNKNOWN, check_budget, estimate, total
from trainyard.plan.deployed import wanted
from trainyard.plan.history import History
from trainyard.plan.prices import HOURS_A_MONTH, load

PRICES = load("us-east-1", HERE / "prices.json")


def costs(studio: Studio, *overrides: str, body=lambda body: None, seconds=(), prices=PRICES):
    """(step → cost, total, list) of a change; ``seconds``: Train's earlier runs."""
    made = wanted(studio.compiled(Change(overrides, body=body)))
    history = History(None, None)
    for number, each in enumerate(seconds):
        run = _run(json.loads(studio.base.body))
        train = run.steps["Train"]
        longer = replace(train, ended=train.started + timedelta(seconds=each))
        steps = {**run.steps, "Train": longer}
        history.runs.append(replace(run, arn=f"{run.arn}{number}", steps=steps))
    outcomes = predict(made.document, made.name, history, datetime.now(UTC))
    found = estimate(made.document, outcomes, history, prices)
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


@pytest.mark.parametrize(("bound", "amount"), [("limit", 0.0), ("uncached", 189.21), ("seen", 0.0)])
def test_what_a_budget_is_compared_with(studio: Studio, bound: str, amount: float):
    _, _, found = costs(studio, seconds=(3600,))
    verdict = check_budget(Budget(usd_per_run=100, bound=bound), found, PRICES)
    assert f"${amount:,.2f} (" in verdict.text
    assert verdict.holds == (amount <= 100)


def test_the_budget_of_what_was_seen_takes_the_limit_where_nothing_was(studio: Studio):
    _, _, found = costs(studio, "train.loop.seed=1", seconds=(3600,))
    seen = check_budget(Budget(usd_per_run=20, bound="seen"), found, PRICES)
    limit = check_budget(Budget(usd_per_run=20, bound="limit"), found, PRICES)
    assert seen.holds and "$14." in seen.text
    assert not limit.holds and "the recipe allows $20.00" in limit.text
    _, _, new = costs(studio)
    assert "$189.21" in check_budget(Budget(usd_per_run=1, bound="seen"), new, PRICES).text


def test_a_budget_that_cannot_be_checked_does_not_hold(studio: Studio):
    found, whole, every = costs(studio, "train.instance_type=ml.p5.48xlarge")
    assert found["Train"].unpriced == "ml.p5.48xlarge" and found["Train"].usd_limit is None
    assert whole.usd_limit is None and whole.limit == 19 * 3600
    verdict = check_budget(Budget(usd_per_run=1e9), every, PRICES)
    assert not verdict.holds and "no price for ml.p5.48xlarge" in verdict.text
    assert check_budget(Budget(), every, PRICES).holds
    _, _, nowhere = costs(studio, prices=load("mars-north-1", HERE / "prices.json"))
    assert (
        "mars-north-1 has no price"
        in check_budget(
            Budget(usd_per_run=1), nowhere, load("mars-north-1", HERE / "prices.json")
        ).text
    )


def test_a_job_without_a_limit_has_no_upper_bound(studio: Studio):
    def unlimited(body: dict) -> None:
        del body["Steps"][0]["Arguments"]["StoppingCondition"]

    found, whole, every = costs(studio, body=unlimited)
    assert found["Shard"].limit is None and whole.limit is None and whole.usd_limit is None
    assert "no time limit" in check_budget(Budget(usd_per_run=1), every, PRICES).text
