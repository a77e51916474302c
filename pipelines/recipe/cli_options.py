"""Command line options that the application's commands share."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from pipelines.recipe.environments import find_account
from pipelines.recipe.read_recipe import load_recipe
from trainyard.terminal import Need, has_value

START = "python -m pipelines.start"
"""Command that starts an execution, for messages."""

RecipeOption = Annotated[Path, typer.Option("--recipe", help="The recipe's YAML file.")]
RecipeChoice = Annotated[Path | None, typer.Option("--recipe", help="The recipe's YAML file.")]
SetOption = Annotated[
    list[str],
    typer.Option("--set", metavar="FIELD.PATH=VALUE", help="Override one field of the recipe."),
]
EnvOption = Annotated[
    str | None, typer.Option("--env", metavar="NAME", help="The environment of the recipe.")
]
NOT_GIVEN: list[str] = []
"""Default of an option that may be given several times; must never be modified."""

NewestOfRecipe = Annotated[
    Path | None,
    typer.Option("--recipe", help="Use the newest execution of this recipe's pipeline."),
]
ChampionOption = Annotated[
    str | None,
    typer.Option(
        metavar="ARN|none",
        help="The model package to compare with; default: the latest Approved one of its group.",
    ),
]
ONE_SUBJECT = Need(("recipe", "definition", "pipeline"))


def require_recipe_for(*options: str) -> Need:
    """Return the requirement that ``--recipe`` is given if any of ``options`` is given."""
    return Need(("recipe",), lambda values: any(has_value(values[name]) for name in options))


def make_run_options(**application: Any) -> Callable[..., Mapping[str, Any]]:
    """Return a function that adds the command-line options by which a recipe selects its pipeline.

    That function is for commands about an execution; it returns the pipeline's name and region.

    ``application``: further arguments of the command.
    """

    def run_options(
        values: Mapping[str, Any],
        recipe: NewestOfRecipe = None,
        overrides: SetOption = NOT_GIVEN,
        environment: EnvOption = None,
    ) -> Mapping[str, Any]:
        """Return the command's arguments: pipeline, region, start command, ``application``."""
        name, region, _ = resolve_pipeline(recipe, overrides, values["pipeline"], environment)
        run = {"pipeline": name, "region": region or values["region"]}
        return {**run, "start": START, **application}

    return run_options


def resolve_pipeline(
    recipe: Path | None, overrides: Sequence[str], pipeline: str | None, environment: str | None
) -> tuple[str | None, str | None, str | None]:
    """Return (name, region, account) of the pipeline that ``--recipe`` or ``--pipeline`` selects.

    The account is the one in which the pipeline must be; region and account are None if unknown.
    """
    if recipe is None:
        return pipeline, None, None
    recipe_config = load_recipe(recipe, overrides, environment)
    return (
        recipe_config.pipeline.name,
        recipe_config.aws.region,
        find_account(recipe_config.aws, environment),
    )
