"""Shared parts of the jobs' command lines: the loop's settings, and readable error messages."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated

import typer
from pydantic import ValidationError
from rich.console import Console

from trainyard.common.errors import TrainingError, TrainyardError

Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=VALUE", help="A setting of the training loop."),
]


def run(command: Callable[..., None]) -> None:
    """Run a module's command; an error of ours prints its message alone, with exit status 1."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(command)
    try:
        app()
    except TrainyardError as error:
        shown = Console(stderr=True, soft_wrap=True)
        shown.print(f"error: {error}", style="red", highlight=False, markup=False)
        sys.exit(1)


def assigned(given: Sequence[str] | None) -> dict[str, str]:
    """Return field → value of each ``--set``.

    Raises:
        TrainingError: an argument is not of the form FIELD=VALUE.
    """
    return dict(map(_assignment, given or ()))


@contextmanager
def explained(world: int) -> Iterator[None]:
    """Context in which errors of ``TrainConfig`` become readable, one line per problem.

    Raises:
        TrainingError: a setting is wrong, or ``world`` ranks cannot share the work with these
            settings.
    """
    try:
        yield
    except ValidationError as error:
        problems = [f"{'.'.join(map(str, p['loc']))}: {p['msg']}" for p in error.errors()]
        raise TrainingError("\n".join(problems)) from None
    except ValueError as error:
        raise TrainingError(f"--world {world}: {error}") from None


def _assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise TrainingError(f"--set {text}: expected FIELD=VALUE, like strategy=fsdp")
    return name, value
