"""Command line options that the application's verbs share."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from pipelines.recipe.aws_account import account_number
from pipelines.recipe.read_recipe import load
from trainyard.common.errors import RecipeError

START = "python -m pipelines.start"
"""Command that starts a run, for messages."""

RecipeOption = Annotated[Path, typer.Option("--recipe", help="The recipe's YAML file.")]
SetOption = Annotated[
    list[str],
    typer.Option("--set", metavar="FIELD.PATH=VALUE", help="Override one field of the recipe."),
]
EnvOption = Annotated[
    str | None, typer.Option("--env", metavar="NAME", help="The environment of the recipe.")
]
NOT_GIVEN: list[str] = []
"""Default of an option that may be given several times; never changed."""

NewestOfRecipe = Annotated[
    Path | None, typer.Option("--recipe", help="The newest execution of this recipe's pipeline.")
]
ChampionOption = Annotated[
    str | None,
    typer.Option(
        metavar="ARN|none",
        help="The model package to compare with; default: the latest Approved one of its group.",
    ),
]
WaitOption = Annotated[
    bool, typer.Option("--wait", help="Watch the run; exit 0 only when it Succeeded.")
]

StopOption = Annotated[
    bool,
    typer.Option("--stop-on-interrupt", help="With --wait: Ctrl-C also stops the run."),
]


def pipeline_name(
    recipe: Path | None, overrides: Sequence[str], pipeline: str | None, environment: str | None
) -> tuple[str | None, str | None, str | None]:
    """Return the name and region of the pipeline that ``--recipe`` or ``--pipeline`` selects, and
    the account that it must be in.
    """
    needs_recipe(environment, recipe)
    if recipe is None:
        return pipeline, None, None
    loaded = load(recipe, overrides, environment)
    return loaded.pipeline.name, loaded.aws.region, account_number(loaded.aws, environment)


def needs_recipe(environment: str | None, recipe: Path | None) -> None:
    """Refuse an environment of no recipe."""
    if environment is not None and recipe is None:
        raise RecipeError(f"--env {environment}: is of which recipe? give --recipe FILE, too")
