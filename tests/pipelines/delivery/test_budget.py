"""The budget of one run, and the estimate of a training that may never have run."""

import itertools
import json
from itertools import pairwise

import boto3
import pytest

from pipelines.delivery.budget import check_budget, judge_upcoming_run, predict_run
from pipelines.delivery.training_estimate import predict_trainings
from pipelines.recipe.sections import Budget
from tests.trainyard.plan.pictures import HERE, Change, Studio
from tests.trainyard.plan.test_run_cost import PRICES, costs
from trainyard.foresight.interval import Spread
from trainyard.plan.pipeline_plan import apply_parameters
from trainyard.plan.prices import load_prices
from trainyard.plan.run_cost import Foreseen, NotForeseen, Verdict, sum_known

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def sagemaker():
    """Return a client of which only the region is used: nothing is deployed."""
    return boto3.client("sagemaker", region_name="us-east-1")


def judge_run_budget(sagemaker, document: dict, budget: Budget, given: dict) -> Verdict:
    return judge_upcoming_run(predict_run(sagemaker, document, "p", given, exists=False), budget)


@pytest.mark.parametrize(
    ("given", "override"),
    [
        ({"TrainInstanceCount": "4"}, "train.instance_count=4"),
        ({"TrainInstanceType": "ml.p4d.24xlarge"}, "train.instance_type=ml.p4d.24xlarge"),
        ({"TrainInstanceType": "ml.p5.48xlarge"}, "train.instance_type=ml.p5.48xlarge"),
        ({"ShardInstanceCount": "32"}, "shard.instance_count=32"),
        ({"MaxSteps": "501"}, "train.loop.max_steps=501"),
    ],
)
def test_a_run_with_other_parameters_costs_what_a_recipe_with_those_values_costs(
    studio: Studio, sagemaker, given: dict, override: str
):
    recipe, changed = (
        studio.compile_change(Change(each)).state.document for each in ((), (override,))
    )
    for bound, allowed in itertools.product(("limit", "seen", "uncached"), (100.0, 1e6)):
        budget = Budget(usd_per_run=allowed, bound=bound)
        run = judge_run_budget(sagemaker, recipe, budget, given)
        whole = judge_run_budget(sagemaker, changed, budget, {})
        assert run.holds == whole.holds
        assert run.text.partition(" (")[0] == whole.text.partition(" (")[0]


def test_what_was_seen_with_other_parameters_is_no_ground(studio: Studio, sagemaker):
    document = studio.base.state.document
    budget = Budget(usd_per_run=1, bound="seen")
    found = judge_run_budget(sagemaker, document, budget, {"MaxSteps": "9"}).text
    assert "every step that runs as long as it may, on demand" in found
    champion = judge_run_budget(sagemaker, document, budget, {"ChampionArn": "none"})
    assert "as long as its longest earlier run" in champion.text


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
    _, _, every = costs(studio, "train.instance_type=ml.p5.48xlarge")
    verdict = check_budget(Budget(usd_per_run=1e9), every, PRICES)
    assert not verdict.holds and "no price for ml.p5.48xlarge" in verdict.text
    assert check_budget(Budget(), every, PRICES).holds
    mars = load_prices("mars-north-1", HERE / "prices.json")
    _, _, nowhere = costs(studio, prices=mars)
    said = check_budget(Budget(usd_per_run=1), nowhere, mars).text
    assert "mars-north-1 has no price" in said

    def remove_time_limit(body: dict) -> None:
        del body["Steps"][0]["Arguments"]["StoppingCondition"]

    _, _, every = costs(studio, body=remove_time_limit)
    assert "no time limit" in check_budget(Budget(usd_per_run=1), every, PRICES).text


def test_a_limit_is_a_limit_whatever_is_done_within_it(studio: Studio, sagemaker):
    document = studio.base.state.document
    for bound in ("limit", "uncached"):
        budget = Budget(usd_per_run=1000, bound=bound)
        short, long = (
            judge_run_budget(sagemaker, document, budget, given)
            for given in ({"MaxSteps": "1"}, {})
        )
        assert short.text.partition(" (")[0] == long.text.partition(" (")[0]


def test_where_nobody_saw_a_step_its_foreseen_ninth_decile_counts(studio: Studio):
    """It is also shown beside a limit; the longest run seen comes before it."""
    foresight = {"Train": Foreseen(seconds=Spread(3600, 7200, 14400), grounds="so many steps")}
    _, whole, new = costs(studio, foresight=foresight)
    [train] = [cost for cost in new if cost.step == "Train"]
    assert whole.usd_expected.high is None and train.usd_expected.high is not None
    rest = sum_known(cost.usd_limit for cost in new if cost is not train)
    verdict = check_budget(Budget(usd_per_run=80, bound="seen"), new, PRICES)
    assert verdict.holds and f"at most ${rest + train.usd_expected.high:,.2f}" in verdict.text
    assert verdict.text.endswith("Train as long as predicted (p90))")
    beside = check_budget(Budget(usd_per_run=400), new, PRICES).text
    assert f"; ${rest + train.usd_expected.high:,.2f} if Train takes" in beside
    changed = ("train.loop.learning_rate=0.001",)
    _, _, seen = costs(studio, *changed, seconds=(36000,), foresight=foresight)
    assert "predicted" not in check_budget(Budget(usd_per_run=400, bound="seen"), seen, PRICES).text


def train(studio: Studio, *overrides: str, **given: str) -> Foreseen | NotForeseen:
    document = apply_parameters(studio.compile_change(Change(overrides)).state.document, given)
    found = predict_trainings(document, "us-east-1")
    assert set(found) == {"Train"}  # nobody claims anything of the others
    return found["Train"]


def test_a_training_by_our_loop_is_foreseen_with_its_grounds(studio: Studio):
    found = train(studio)
    assert isinstance(found, Foreseen)
    seconds = found.seconds
    assert 0 < seconds.p10 < seconds.p50 < seconds.p90
    assert found.grounds.startswith("20,000 steps of ")
    assert any(line.startswith("on demand completes after ") for line in found.remarks)
    assert any(line.startswith("fits: needs ") for line in found.remarks)
    assert found == train(studio)


def test_it_is_that_of_the_runs_own_parameters(studio: Studio):
    runs = [train(studio, MaxSteps=steps) for steps in ("10", "20000", "200000")]
    for shorter, longer in pairwise(runs):
        assert isinstance(shorter, Foreseen) and isinstance(longer, Foreseen)
        assert shorter.seconds.p50 < longer.seconds.p50
    short = train(studio, MaxSteps="1")
    assert isinstance(short, Foreseen)
    assert 30 < short.seconds.p10 < short.seconds.p90  # it has to start, whatever it does then


def test_what_is_stopped_is_told_and_spot_machines_take_longer(studio: Studio):
    without = train(studio, MaxSteps="2000000")
    assert isinstance(without, Foreseen)
    [said] = without.warnings
    assert said.startswith("will be stopped by its time limit of 12 h 00 min")
    spot = ("train.spot=true", "train.max_wait_minutes=900", "train.loop.checkpoint_interval=19999")
    found = train(studio, *spot, MaxSteps="2000000")
    assert isinstance(found, Foreseen) and found.seconds.p90 > without.seconds.p90
    json.dumps(found.seconds.p90, allow_nan=False)
    # one that loses all before it saves
    rarely = ("train.loop.max_steps=40000000", "train.loop.checkpoint_interval=20000000")
    found = train(studio, "train.spot=true", "train.max_wait_minutes=40000", *rarely)
    assert isinstance(found, Foreseen)
    assert any(line.startswith("may never end: ") for line in found.warnings)
    assert found.seconds.p10 <= found.seconds.p90 < float("inf")  # given up, and charged until then


def test_what_is_not_foreseen_says_why(studio: Studio):
    assert train(studio, TrainInstanceType="ml.m5.large") == NotForeseen("ml.m5.large has no GPU")
    body = json.loads(studio.base.body)
    [step] = [step for step in body["Steps"] if step["Name"] == "Train"]
    step["Arguments"]["HyperParameters"] = {"epochs": "3"}
    found = predict_trainings(body, "us-east-1")["Train"]
    assert isinstance(found, NotForeseen) and "its computation is not known" in found.why
