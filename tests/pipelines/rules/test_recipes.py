"""The recipes of the repository break no rule; what is made wrong in them is named."""

from pathlib import Path

import pytest

from pipelines.recipe.read_recipe import load_recipe
from pipelines.rules import check_definition
from tests.pipelines.rules.recipe_faults import RECIPE_FAULTS, RecipeFault
from tests.pipelines.test_definition import compile_recipe
from trainyard.common.errors import RecipeError
from trainyard.validate.location import Finding

pytestmark = pytest.mark.long

ALONE = [fault for fault in RECIPE_FAULTS if fault.rule is None]
COMPILED = [fault for fault in RECIPE_FAULTS if fault.rule]


def of_recipe(name: str, *overrides: str) -> list[Finding]:
    path = f"recipes/{name}.yaml"
    begun = load_recipe(Path(path), overrides).train.start_from
    if begun and begun.model_package:  # whose file only the registry knows
        overrides += ("train.start_from.model=s3://trainyard-laptop/base/model.tar.gz",)
    return check_definition(compile_recipe(path, *overrides).body)


def title(fault: RecipeFault) -> str:
    return f"{fault.recipe} {' '.join(fault.overrides)}"


@pytest.mark.parametrize("recipe", [path.stem for path in sorted(Path("recipes").glob("*.yaml"))])
def test_a_recipe_of_the_repository_breaks_no_rule(recipe: str):
    assert of_recipe(recipe) == []


@pytest.mark.parametrize("fault", ALONE, ids=title)
def test_a_wrong_recipe_is_refused_by_its_field(fault: RecipeFault):
    with pytest.raises(RecipeError) as refused:
        load_recipe(Path(f"recipes/{fault.recipe}.yaml"), fault.overrides)
    assert fault.field in str(refused.value)


def together() -> list[list[RecipeFault]]:
    """The faults in groups that set no field twice: a recipe is compiled once a group."""
    groups: list[list[RecipeFault]] = []
    for fault in COMPILED:
        for group in groups:
            if not fields([fault]) & fields(group):
                group.append(fault)
                break
        else:
            groups.append([fault])
    return groups


def fields(faults: list[RecipeFault]) -> set[str]:
    return {override.partition("=")[0] for fault in faults for override in fault.overrides}


@pytest.mark.parametrize("group", together(), ids=lambda group: group[0].rule)
def test_what_only_the_definition_shows_is_found_there(group: list[RecipeFault]):
    overrides = [override for fault in group for override in fault.overrides]
    found = of_recipe(group[0].recipe, *overrides)
    for fault in group:
        named = [finding.path for finding in found if finding.rule == fault.rule]
        assert named, fault
        assert all(fault.field in path for path in named), fault
