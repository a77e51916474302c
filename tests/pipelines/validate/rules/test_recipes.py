"""The recipes of the repository break no rule; what is made wrong in them is named."""

import json
from pathlib import Path

import pytest

from errors import RecipeError
from pipelines.account import resolve
from pipelines.definition import build
from pipelines.recipe import load
from pipelines.validate.findings import Finding
from pipelines.validate.rules import findings
from tests.pipelines.validate.rules.definitions import document
from tests.pipelines.validate.rules.recipe_faults import RECIPE_FAULTS, RecipeFault

ALONE = [fault for fault in RECIPE_FAULTS if fault.rule is None]
COMPILED = [fault for fault in RECIPE_FAULTS if fault.rule]


def of_recipe(name: str, *overrides: str) -> list[Finding]:
    recipe = load(Path(f"recipes/{name}.yaml"), overrides)
    definition = build(recipe, resolve(recipe.aws), commit="0" * 40, source=None)
    return list(findings(document(json.loads(definition.body))))


def title(fault: RecipeFault) -> str:
    return f"{fault.recipe} {' '.join(fault.overrides)}"


@pytest.mark.parametrize("recipe", [path.stem for path in sorted(Path("recipes").glob("*.yaml"))])
def test_a_recipe_of_the_repository_breaks_no_rule(recipe: str):
    assert of_recipe(recipe) == []


@pytest.mark.parametrize("fault", ALONE, ids=title)
def test_a_wrong_recipe_is_refused_by_its_field(fault: RecipeFault):
    with pytest.raises(RecipeError) as refused:
        load(Path(f"recipes/{fault.recipe}.yaml"), fault.overrides)
    assert fault.field in str(refused.value)


@pytest.mark.parametrize("fault", COMPILED, ids=title)
def test_what_only_the_definition_shows_is_found_there(fault: RecipeFault):
    named = [f.path for f in of_recipe(fault.recipe, *fault.overrides) if f.rule == fault.rule]
    assert named
    assert all(fault.field in path for path in named)
