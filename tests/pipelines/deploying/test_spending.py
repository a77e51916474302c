"""The budget of one run: the same sums as a plan's, with the parameters of that run."""

import boto3
import pytest

from pipelines.deploying.spending import ahead, verdict
from pipelines.recipe.config import Budget
from tests.trainyard.plan.pictures import Change, Studio
from trainyard.plan.cost import Verdict
from trainyard.plan.deployed import wanted


@pytest.fixture(scope="module")
def sagemaker():
    """Only its region is looked at: nothing is deployed."""
    return boto3.client("sagemaker", region_name="us-east-1")


def said(sagemaker, document: dict, budget: Budget, given: dict) -> Verdict:
    return verdict(ahead(sagemaker, document, "p", given, exists=False), budget)


@pytest.mark.parametrize(
    ("given", "overrides"),
    [
        ({"TrainInstanceCount": "4"}, ("train.instance_count=4",)),
        ({"TrainInstanceType": "ml.p4d.24xlarge"}, ("train.instance_type=ml.p4d.24xlarge",)),
        ({"ShardInstanceCount": "32"}, ("shard.instance_count=32",)),
        ({"TrainInstanceType": "ml.no.such"}, ("train.instance_type=ml.no.such",)),
        ({"MaxSteps": "1"}, ()),  # a limit is a limit, whatever is done within it
    ],
)
@pytest.mark.parametrize("bound", ["limit", "seen", "uncached"])
def test_a_run_with_other_parameters_costs_what_a_recipe_with_those_values_costs(
    studio: Studio, sagemaker, given: dict, overrides: tuple, bound: str
):
    recipe, changed = (wanted(studio.compiled(Change(each))).document for each in ((), overrides))
    for allowed in (100.0, 1e6):
        budget = Budget(usd_per_run=allowed, bound=bound)
        run = said(sagemaker, recipe, budget, given)
        whole = said(sagemaker, changed, budget, {})
        assert run.holds == whole.holds
        assert run.text.partition(" (")[0] == whole.text.partition(" (")[0]


def test_what_was_seen_with_other_parameters_is_no_ground(studio: Studio, sagemaker):
    document = wanted(studio.base).document
    budget = Budget(usd_per_run=1, bound="seen")
    found = said(sagemaker, document, budget, {"MaxSteps": "9"}).text
    assert "every step that runs as long as it may, on demand" in found
    champion = said(sagemaker, document, budget, {"ChampionArn": "none"})
    assert "as long as its longest earlier run" in champion.text
