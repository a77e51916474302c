"""The command line of a job: an error of ours prints only its message.

This is a separate module because programs that share nothing else use it.
"""

import sys
from collections.abc import Callable

import typer
from rich.console import Console

from trainyard.common.errors import TrainyardError


def run(command: Callable[..., None]) -> None:
    """Run a function as a command; a ``TrainyardError`` prints only its message, with exit status
    1.
    """
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(command)
    try:
        app()
    except TrainyardError as error:
        console = Console(stderr=True, soft_wrap=True)
        console.print(f"error: {error}", style="red", highlight=False, markup=False)
        sys.exit(1)
