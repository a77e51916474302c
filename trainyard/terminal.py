"""Show a command line's output, and errors that the user can act on."""

import ast
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from trainyard.common.errors import RecipeError, TrainyardError

ExecutionArgument = Annotated[
    str | None, typer.Argument(metavar="EXECUTION", help="The execution's ARN; else the newest.")
]
NewestOfPipeline = Annotated[
    str | None, typer.Option("--pipeline", help="The newest execution of this pipeline.")
]

LOG_COLUMNS = (
    160  # a table in a log must not cut names, as it would at 80, the default without a terminal
)
console = Console(soft_wrap=True, emoji=False)  # a log keeps an ARN on one line
if not console.is_terminal and "COLUMNS" not in os.environ:
    console.width = LOG_COLUMNS
errors = Console(stderr=True, soft_wrap=True, emoji=False)


def run(
    command: Callable[..., None],
    name: str | None = None,
    arguments: Sequence[str] | None = None,
    settings: dict[str, Any] | None = None,
) -> None:
    """Run a verb; a Trainyard error is shown as its message alone, with exit status 1.

    ``name`` and ``arguments`` are those of the process when not given; ``settings`` are click's
    of the command's context.
    """
    for stream in (sys.stdout, sys.stderr):  # arguments may not be valid text: show them anyway
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command(context_settings=settings)(command)
    try:
        app(arguments, prog_name=name)
    except TrainyardError as error:
        errors.print(f"[bold red]error:[/] {_plain(error)}", highlight=False)
        sys.exit(1)


def pairs(option: str, given: Sequence[str]) -> dict[str, str]:
    """Parse a repeated option ``NAME=VALUE``.

    Raises:
        RecipeError: one is not of that form.
    """
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise RecipeError(f"{option} {text}: must be NAME=VALUE")
        found[name] = value
    return found


def list_verbs(call: str, files: Mapping[str, Path]) -> None:
    """Print each verb with the first line of its module, without importing the module.

    ``call`` is how a verb is run; ``files`` are the verbs' modules.
    """
    console.print(f"{call} ...; {call} --help says more\n", markup=False, highlight=False)
    width = max(map(len, files))
    for verb, file in files.items():
        source = file.read_text(encoding="utf-8")
        about = (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]
        console.print(f"  {verb:<{width}}  {about}", markup=False, highlight=False)


def refuse_place(out: Path) -> None:
    """Check that a file can be written there, before the work that takes time.

    Raises:
        RecipeError: it cannot be written.
    """
    try:
        wrong = "it is a folder" if out.is_dir() else ""
        if not out.parent.is_dir():
            wrong = f"there is no folder {out.parent}"
    except (OSError, ValueError) as error:  # a name that is too long, or invalid
        wrong = str(error)
    if wrong:
        raise RecipeError(f"--out {out}: {wrong}; name a file in a folder that exists")


def _plain(error: TrainyardError) -> str:
    return str(error).replace("[", r"\[")  # not to be read as the terminal library's markup
