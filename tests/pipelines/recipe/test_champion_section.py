"""The section champion: which champions of other pipelines the evaluation can score."""

import pytest

from pipelines.recipe.read_recipe import load
from tests.conftest import CHECKOUT
from trainyard.common.errors import RecipeError

ARN = "arn:aws:sagemaker:us-east-1:123456789012:model-package/theirs/7"
FLIGHTS, SCRIPT = CHECKOUT / "recipes/flights.yaml", CHECKOUT / "tests/somebodys/recipe.yaml"
LAPTOP = CHECKOUT / "recipes/laptop.yaml"


@pytest.mark.parametrize(
    ("recipe", "given", "said"),
    [
        (FLIGHTS, "", "set either scores, a table, or script"),
        (FLIGHTS, ", scores: a.csv, script: a.py", "set either scores, a table, or script"),
        (FLIGHTS, ", script: a.sh", "script: 'a.sh' must end in .py"),
        (FLIGHTS, ", scores: a.csv, columns: [hour]", "columns: belongs to a script"),
        (FLIGHTS, ", script: a.py, columns: [houre]", "'houre' is not in the shards; nearest"),
        (FLIGHTS, ", script: a.py, content_type: text/plain", "champion.content_type"),
        (LAPTOP, ", scores: a.csv", "workload language_model cannot"),
        (SCRIPT, ", script: a.py", "champion.script: evaluate.script scores every champion"),
    ],
)
def test_what_cannot_be_scored_is_refused(recipe, given, said):
    with pytest.raises(RecipeError) as refused:
        load(recipe, [f"champion={{model_package: '{ARN}'{given}}}"])
    assert said in str(refused.value)


def test_a_package_is_named_by_its_arn():
    with pytest.raises(RecipeError, match="champion.model_package"):
        load(FLIGHTS, ["champion={model_package: theirs/7, scores: a.csv}"])
