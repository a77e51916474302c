"""What every verb's command line has in common: its options, and how errors are shown."""

import sys
from collections.abc import Callable, Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from errors import RecipeError, TrainyardError
from pipelines.recipe import load

RecipeOption = Annotated[Path, typer.Option("--recipe", help="The recipe's YAML file.")]
SetOption = Annotated[
    list[str],
    typer.Option("--set", metavar="FIELD.PATH=VALUE", help="Override one field of the recipe."),
]
ExecutionArgument = Annotated[
    str | None, typer.Argument(metavar="EXECUTION", help="The execution's ARN; else the newest.")
]
NewestOfRecipe = Annotated[
    Path | None, typer.Option("--recipe", help="The newest execution of this recipe's pipeline.")
]
NewestOfPipeline = Annotated[
    str | None, typer.Option("--pipeline", help="The newest execution of the pipeline so named.")
]
ChampionOption = Annotated[
    str | None,
    typer.Option(
        metavar="ARN|none",
        help="The model package to compare with; else the latest Approved one of its group.",
    ),
]
WaitOption = Annotated[
    bool, typer.Option("--wait", help="Watch the run; exit 0 only when it Succeeded.")
]

StopOption = Annotated[
    bool,
    typer.Option("--stop-on-interrupt", help="With --wait: Ctrl-C stops the run, too."),
]

console = Console(soft_wrap=True)  # a log keeps an ARN on one line
errors = Console(stderr=True, soft_wrap=True)


def run(command: Callable[..., None]) -> None:
    """Run a verb: an error of ours is shown as its message alone, with exit status 1."""
    for stream in (sys.stdout, sys.stderr):  # what somebody gave us may be no text: show it still
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(command)
    try:
        app()
    except TrainyardError as error:
        errors.print(f"[bold red]error:[/] {_plain(error)}", highlight=False)
        sys.exit(1)


def refuse_place(out: Path) -> None:
    """Look whether a file can be written there, before what takes its time.

    Raises:
        RecipeError: it cannot.
    """
    try:
        wrong = "it is a folder" if out.is_dir() else ""
        if not out.parent.is_dir():
            wrong = f"there is no folder {out.parent}"
    except (OSError, ValueError) as error:  # a name that is too long, or none
        wrong = str(error)
    if wrong:
        raise RecipeError(f"--out {out}: {wrong}; name a file in a folder that exists")


def pipeline_name(
    recipe: Path | None, overrides: Sequence[str], pipeline: str | None
) -> tuple[str | None, str | None]:
    """The pipeline's name and region that ``--recipe`` or ``--pipeline`` stand for."""
    if recipe is None:
        return pipeline, None
    loaded = load(recipe, overrides)
    return loaded.pipeline.name, loaded.aws.region


def _plain(error: TrainyardError) -> str:
    return str(error).replace("[", r"\[")  # not to be read as the terminal library's markup
