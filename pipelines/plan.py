"""Show what an upsert would change, what the next run would do, and what that may cost.

python -m pipelines.plan --recipe recipes/laptop.yaml [--set FIELD.PATH=VALUE] [--out plan.json]

Changes nothing. Exit status 0: no change; 2: changes; 1: an error, or over the recipe's budget.
"""

import json
from pathlib import Path
from typing import Annotated

import typer

from pipelines.deploy import saved_plan
from pipelines.deploy.recipe_plan import make
from pipelines.recipe.aws_account import resolve
from pipelines.recipe.cli_options import NOT_GIVEN, RecipeOption, SetOption
from pipelines.recipe.read_recipe import load
from trainyard.common.errors import PlanError
from trainyard.local_state import served
from trainyard.plan.plan_display import show
from trainyard.terminal import console, refuse_place, run

CHANGES = 2


@served()
def main(
    recipe: RecipeOption,
    overrides: SetOption = NOT_GIVEN,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Write it for python -m pipelines.upsert --plan.")
    ] = None,
) -> None:
    """Show what an upsert would change; 0: nothing, 2: something."""
    if out:
        refuse_place(out)
    loaded = load(recipe, overrides)
    resolve(loaded.aws)  # a missing field is reported before the SDK is loaded
    from pipelines.definition import from_recipe  # loads the SDK, which takes seconds

    definition = from_recipe(recipe, overrides)
    plan = make(definition)
    if as_json:
        print(json.dumps(saved_plan.as_json(plan, definition), indent=1))
    else:
        show(plan)
    if not plan.budget.holds:
        raise PlanError(f"budget: {plan.budget.text.partition(';')[0]}")
    if out:
        saved_plan.write(out, plan, definition, recipe, overrides)
        if not as_json:
            console.print(f"python -m pipelines.upsert --plan {out} applies exactly this")
    raise typer.Exit(CHANGES if plan.deployed is None or plan.diff else 0)


if __name__ == "__main__":
    run(main)
