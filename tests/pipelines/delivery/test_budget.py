"""The budget of one run: the same sums as a plan's, with the parameters of that run."""

import boto3
import pytest

from pipelines.delivery.budget import check_budget, predict_run, verdict
from pipelines.recipe.sections import Budget
from tests.trainyard.plan.pictures import HERE, Change, Studio
from tests.trainyard.plan.test_run_cost import PRICES, costs
from trainyard.foresight.interval import Spread
from trainyard.plan.prices import load
from trainyard.plan.run_cost import Foreseen, Verdict, all_of

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def sagemaker():
    """Return a client of which only the region is used: nothing is deployed."""
    return boto3.client("sagemaker", region_name="us-east-1")


def said(sagemaker, document: dict, budget: Budget, given: dict) -> Verdict:
    return verdict(predict_run(sagemaker, document, "p", given, exists=False), budget)


@pytest.mark.parametrize(
    ("given", "overrides"),
    [
        ({"TrainInstanceCount": "4"}, ("train.instance_count=4",)),
        ({"TrainInstanceType": "ml.p4d.24xlarge"}, ("train.instance_type=ml.p4d.24xlarge",)),
        ({"ShardInstanceCount": "32"}, ("shard.instance_count=32",)),
        ({"TrainInstanceType": "ml.p5.48xlarge"}, ("train.instance_type=ml.p5.48xlarge",)),
        ({"MaxSteps": "501"}, ("train.loop.max_steps=501",)),
    ],
)
@pytest.mark.parametrize("bound", ["limit", "seen", "uncached"])
def test_a_run_with_other_parameters_costs_what_a_recipe_with_those_values_costs(
    studio: Studio, sagemaker, given: dict, overrides: tuple, bound: str
):
    recipe, changed = (studio.compiled(Change(each)).state.document for each in ((), overrides))
    for allowed in (100.0, 1e6):
        budget = Budget(usd_per_run=allowed, bound=bound)
        run = said(sagemaker, recipe, budget, given)
        whole = said(sagemaker, changed, budget, {})
        assert run.holds == whole.holds
        assert run.text.partition(" (")[0] == whole.text.partition(" (")[0]


def test_what_was_seen_with_other_parameters_is_no_ground(studio: Studio, sagemaker):
    document = studio.base.state.document
    budget = Budget(usd_per_run=1, bound="seen")
    found = said(sagemaker, document, budget, {"MaxSteps": "9"}).text
    assert "every step that runs as long as it may, on demand" in found
    champion = said(sagemaker, document, budget, {"ChampionArn": "none"})
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
    _, _, nowhere = costs(studio, prices=load("mars-north-1", HERE / "prices.json"))
    assert (
        "mars-north-1 has no price"
        in check_budget(
            Budget(usd_per_run=1), nowhere, load("mars-north-1", HERE / "prices.json")
        ).text
    )


def test_a_budget_needs_a_limit_of_every_job(studio: Studio):
    def unlimited(body: dict) -> None:
        del body["Steps"][0]["Arguments"]["StoppingCondition"]

    _, _, every = costs(studio, body=unlimited)
    assert "no time limit" in check_budget(Budget(usd_per_run=1), every, PRICES).text


def test_a_limit_is_a_limit_whatever_is_done_within_it(studio: Studio, sagemaker):
    document = studio.base.state.document
    for bound in ("limit", "uncached"):
        budget = Budget(usd_per_run=1000, bound=bound)
        short, long = (
            said(sagemaker, document, budget, given) for given in ({"MaxSteps": "1"}, {})
        )
        assert short.text.partition(" (")[0] == long.text.partition(" (")[0]


def test_where_nobody_saw_a_step_its_foreseen_ninth_decile_counts(studio: Studio):
    """It is also shown beside a limit; the longest run seen comes before it."""
    foresight = {"Train": Foreseen(seconds=Spread(3600, 7200, 14400), grounds="so many steps")}
    _, whole, new = costs(studio, foresight=foresight)
    [train] = [cost for cost in new if cost.step == "Train"]
    assert whole.usd_expected.high is None and train.usd_expected.high is not None
    rest = all_of(cost.usd_limit for cost in new if cost is not train)
    verdict = check_budget(Budget(usd_per_run=80, bound="seen"), new, PRICES)
    assert verdict.holds and f"at most ${rest + train.usd_expected.high:,.2f}" in verdict.text
    assert verdict.text.endswith("Train as long as foreseen in nine of ten cases)")
    beside = check_budget(Budget(usd_per_run=400), new, PRICES).text
    assert f"; ${rest + train.usd_expected.high:,.2f} where Train takes" in beside
    changed = ("train.loop.learning_rate=0.001",)
    _, _, seen = costs(studio, *changed, seconds=(36000,), foresight=foresight)
    assert "foreseen" not in check_budget(Budget(usd_per_run=400, bound="seen"), seen, PRICES).text
