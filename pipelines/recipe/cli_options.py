"""Command line options that the application's verbs share."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from pipelines.recipe.read_recipe import load

START = "python -m pipelines.start"
"""Command that starts a run, for messages."""

RecipeOption = Annotated[Path, typer.Option("--recipe", help="The recipe's YAML file.")]
SetOption = Annotated[
    list[str],
    typer.Option("--set", metavar="FIELD.PATH=VALUE", help="Override one field of the recipe."),
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
    recipe: Path | None, overrides: Sequence[str], pipeline: str | None
) -> tuple[str | None, str | None]:
    """Return the name and region of the pipeline that ``--recipe`` or ``--pipeline`` selects."""
    if recipe is None:
        return pipeline, None
    loaded = load(recipe, overrides)
    return loaded.pipeline.name, loaded.aws.region
