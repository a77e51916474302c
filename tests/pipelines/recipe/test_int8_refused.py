"""``gate.int8`` is refused, before anything runs, where a model gets no int8 version."""

from pathlib import Path

import pytest

from pipelines.recipe.read_recipe import load
from trainyard.common.errors import RecipeError

RECIPES = Path(__file__).parents[3] / "recipes"
OVER = ["gate.int8.bits_per_byte=0.01"]


@pytest.mark.parametrize(
    ("recipe", "overrides", "why"),
    [
        ("flights_xgboost", ["gate.int8.log_loss=0.01"], "is for Trainyard's workloads"),
        (
            "finetune",
            ["gate.int8.bits_per_byte=0.01", "train.adapters.merge=false"],
            "adapters alone",
        ),
        ("laptop", ["gate.int8.perplexity=0.01"], "is not a sum over examples"),
        ("laptop", ["gate.int8.bits=0.01"], "is not a metric of workload"),
        ("laptop", ["gate.int8.bits_per_byte=-0.01"], "at least 0"),
    ],
)
def test_it_names_the_field_and_the_fix(recipe, overrides, why):
    with pytest.raises(RecipeError, match=f"(?s)gate.int8.*{why}"):
        load(RECIPES / f"{recipe}.yaml", overrides)


def test_one_that_has_one_is_taken():
    recipe = load(RECIPES / "laptop.yaml", OVER)
    assert recipe.gate.judges_int8 and "int8" not in recipe.gate.kinds
