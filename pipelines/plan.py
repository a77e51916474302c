"""Show what an upsert would change, what the next execution would do, and what that may cost.

python -m pipelines.plan --recipe recipes/laptop.yaml [--set FIELD.PATH=VALUE] [--out plan.json]
python -m pipelines.plan --recipe R --env prod --against staging    # two environments; asks no AWS
python -m pipelines.plan definition.json --pipeline NAME            # as trainyard plan

Changes nothing. Exit status 0: no change; 2: changes; 1: an error, or over the recipe's budget.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from pipelines.delivery import saved_plan
from pipelines.delivery.pipeline_objects import compare_environments
from pipelines.delivery.recipe_plan import plan_pipeline
from pipelines.recipe.cli_options import (
    NOT_GIVEN,
    EnvOption,
    RecipeChoice,
    SetOption,
    require_recipe_for,
)
from pipelines.recipe.environments import resolve_account
from pipelines.recipe.read_recipe import load_recipe
from trainyard.commands import plan
from trainyard.commands.plan import CHANGES, PlanSubject
from trainyard.common.errors import PlanError
from trainyard.plan.pipeline_plan import Plan
from trainyard.terminal import Need, check_writable, console, extend_verb, run


def read_recipe_subject(
    values: Mapping[str, Any],
    recipe: RecipeChoice = None,
    overrides: SetOption = NOT_GIVEN,
    environment: EnvOption = None,
    against: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Compare with this environment, not the deployment."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write the plan for python -m pipelines.upsert --plan.")
    ] = None,
) -> Mapping[str, Any]:
    """Return the command's arguments with the recipe as the subject of the plan.
    With ``against``, print how two environments of the recipe differ, and exit.
    """
    if recipe is None:
        return {}
    if out:
        check_writable(out)
    if against is not None:
        _compare_environments(
            recipe, overrides, str(environment), against, as_json=values["as_json"]
        )
    return {
        "subject": _build_subject(recipe, overrides, environment, out, as_json=values["as_json"])
    }


def _build_subject(
    recipe: Path,
    overrides: Sequence[str],
    environment: str | None,
    out: Path | None,
    *,
    as_json: bool,
) -> PlanSubject:
    """Return the recipe as the subject of a plan: functions that create, serialize and save it."""
    definitions: list[Any] = []

    def make_plan() -> Plan:
        """Compile the recipe and plan it; also append the definition to ``definitions``."""
        resolve_account(
            load_recipe(recipe, overrides, environment).aws
        )  # reports errors before loading the SDK
        from pipelines.definition import from_recipe  # loads the SDK, which takes seconds

        definitions.append(from_recipe(recipe, overrides, environment))
        return plan_pipeline(definitions[0])

    def conclude(plan: Plan) -> None:
        """Write the plan to ``out``; raise PlanError if it is over the budget."""
        if not plan.budget.holds:
            raise PlanError(f"budget: {plan.budget.text.partition(';')[0]}")
        if out:
            saved_plan.write_plan(out, plan, definitions[0], recipe, overrides)
            if not as_json:
                console.print(f"python -m pipelines.upsert --plan {out} applies exactly this")

    return PlanSubject(make_plan, lambda plan: saved_plan.as_json(plan, definitions[0]), conclude)


def _compare_environments(
    recipe: Path, overrides: Sequence[str], environment: str, against: str, *, as_json: bool
) -> NoReturn:
    """Show what differs in ``environment`` from ``against``, and exit."""
    for name in (against, environment):
        resolve_account(load_recipe(recipe, overrides, name).aws)
    from pipelines.definition import from_recipe

    comparison = compare_environments(
        *(from_recipe(recipe, overrides, name) for name in (against, environment))
    )
    if as_json:
        print(json.dumps(comparison.as_json, indent=1))
    else:
        comparison.show()
    raise typer.Exit(CHANGES if comparison.diff else 0)


main = extend_verb(
    plan.main,
    read_recipe_subject,
    Need(("recipe", "definition", "pipeline"), exclusive=False),
    Need(("recipe", "definition"), lambda values: values["recipe"] is not None),
    Need(("recipe", "pipeline"), lambda values: values["recipe"] is not None),
    require_recipe_for("overrides", "environment", "against", "out"),
    Need(("environment",), lambda values: values["against"] is not None),
    Need(("against", "out"), lambda values: values["out"] is not None),
)

if __name__ == "__main__":
    run(main)
