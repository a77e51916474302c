"""A job's command line: an error of ours prints its message alone.

Apart: it is shared by programs that share nothing else.
"""

import sys
from collections.abc import Callable

import typer
from rich.console import Console

from trainyard.common.errors import TrainyardError


def run(command: Callable[..., None]) -> None:
    """Run a module's command; an error of ours prints its message alone, with exit status 1."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(command)
    try:
        app()
    except TrainyardError as error:
        console = Console(stderr=True, soft_wrap=True)
        console.print(f"error: {error}", style="red", highlight=False, markup=False)
        sys.exit(1)
