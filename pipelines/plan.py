"""Show what an upsert would change, what the next run would do, and what that may cost.

python -m pipelines.plan --recipe recipes/laptop.yaml [--set FIELD.PATH=VALUE] [--out plan.json]
python -m pipelines.plan --recipe R --env prod --against staging    # two environments; asks no AWS

Changes nothing. Exit status 0: no change; 2: changes; 1: an error, or over the recipe's budget.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from pipelines.deploy import saved_plan
from pipelines.deploy.environment_diff import compared
from pipelines.deploy.recipe_plan import make
from pipelines.recipe.aws_account import resolve
from pipelines.recipe.cli_options import NOT_GIVEN, EnvOption, RecipeOption, SetOption
from pipelines.recipe.read_recipe import load
from trainyard.common.errors import PlanError, RecipeError
from trainyard.local_state import served
from trainyard.plan.plan_display import show
from trainyard.terminal import console, refuse_place, run

CHANGES = 2


def main(
    recipe: RecipeOption,
    overrides: SetOption = NOT_GIVEN,
    environment: EnvOption = None,
    against: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Compare with this environment, not what is deployed."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Write it for python -m pipelines.upsert --plan.")
    ] = None,
) -> None:
    """Show what an upsert would change; 0: nothing, 2: something."""
    if out:
        refuse_place(out)
    if against is not None:
        _compare(recipe, overrides, environment, against, as_json, out)
    _plan(recipe, overrides, environment, as_json, out)


@served()
def _plan(
    recipe: Path, overrides: Sequence[str], environment: str | None, as_json: bool, out: Path | None
) -> NoReturn:
    """Show what would change of what is deployed, and exit."""
    loaded = load(recipe, overrides, environment)
    resolve(loaded.aws)  # a missing field is reported before the SDK is loaded
    from pipelines.definition import from_recipe  # loads the SDK, which takes seconds

    definition = from_recipe(recipe, overrides, environment)
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


def _compare(
    recipe: Path,
    overrides: Sequence[str],
    environment: str | None,
    against: str,
    as_json: bool,
    out: Path | None,
) -> NoReturn:
    """Show what differs in an environment from another one, and exit."""
    if environment is None:
        raise RecipeError(f"--against {against}: compared with which one? give --env NAME, too")
    if out is not None:
        raise RecipeError(f"--out {out}: a comparison is not a plan to apply; leave out --against")
    for name in (against, environment):
        resolve(load(recipe, overrides, name).aws)
    from pipelines.definition import from_recipe

    found = compared(*(from_recipe(recipe, overrides, name) for name in (against, environment)))
    if as_json:
        print(json.dumps(found.as_json, indent=1))
    else:
        found.show()
    raise typer.Exit(CHANGES if found.diff else 0)


if __name__ == "__main__":
    run(main)
