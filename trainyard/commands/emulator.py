"""An AWS on this machine whose SageMaker really runs the steps.

trainyard emulator [--port P] [--state DIR] [-- COMMAND ...]

Without COMMAND: serves until Ctrl-C, and prints the lines that point a shell at it.
With COMMAND: serves while COMMAND runs, in an environment that takes the emulator for AWS, and
exits with its status.
"""

import logging
import os
import shlex
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from trainyard.emulator.environment import foreign
from trainyard.emulator.objects import ObjectStore
from trainyard.emulator.prune import GB, choose, remove
from trainyard.emulator.server import Endpoint, serve

SETTINGS = {"allow_interspersed_args": False}  # COMMAND's options are its own
people = Console(stderr=True, highlight=False, soft_wrap=True)


def main(
    command: Annotated[
        list[str] | None, typer.Argument(help="Run this against the emulator, then stop.")
    ] = None,
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1; 0 is any free one.")] = 0,
    state: Annotated[Path, typer.Option(help="Directory that keeps everything.")] = Path(
        ".trainyard/aws"
    ),
    keep_gb: Annotated[
        float, typer.Option(min=0, help="Beyond it the oldest results that nothing needs go.")
    ] = 5,
    verbose: Annotated[bool, typer.Option(help="Log every request on stderr.")] = False,
) -> None:
    """An AWS on this machine whose SageMaker really runs the steps."""
    logging.basicConfig(level=logging.WARNING, format="emulator: %(message)s")
    if verbose:
        logging.getLogger("trainyard.emulator").setLevel(logging.DEBUG)
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    with serve(state, port, prepare=lambda s, o: _bound(s, o, keep_gb)) as endpoint:
        status = _run(command, endpoint, stopped) if command else _wait(endpoint, stopped)
    raise typer.Exit(status)


def _bound(state: Path, objects: ObjectStore, keep_gb: float) -> None:
    """Keeps the state directory within bounds, as far as nothing that may be needed goes."""
    found = choose(state, objects, None, int(keep_gb * GB))
    remove(found, state, objects)
    if found.units:
        people.print(found.told("that nothing needs removed"))
    if (left := found.size - found.freed) > keep_gb * GB:
        people.print(
            f"{state} has {left / GB:.1f} GB, more than --keep-gb {keep_gb:g}, and all of it may "
            "be needed; python -m trainyard prune --cached --dry-run says what the "
            "cache alone needs"
        )


def _wait(endpoint: Endpoint, stopped: threading.Event) -> int:
    names = foreign(os.environ, endpoint.env)
    if names:
        print(f"unset {' '.join(names)}")
    for name, value in endpoint.env.items():
        print(f"export {name}={shlex.quote(value)}")
    sys.stdout.flush()
    people.print(f"emulator on {endpoint.url}; give a shell the lines above; Ctrl-C stops it")
    stopped.wait()
    return 0


def _run(command: list[str], endpoint: Endpoint, stopped: threading.Event) -> int:
    """The command's exit status, 128 + N after signal N, as a shell would have it."""
    names = foreign(os.environ, endpoint.env)
    environment = {k: v for k, v in os.environ.items() if k not in names} | endpoint.env
    try:
        child = subprocess.Popen(command, env=environment)
    except OSError as failure:
        people.print(f"error: cannot run {command[0]}: {failure.strerror}", markup=False)
        return 127
    _pass_signals(child)
    if stopped.is_set():  # a signal that came before there was anybody to pass it on to
        child.terminate()
    status = child.wait()
    return status if status >= 0 else 128 - status


def _pass_signals(child: subprocess.Popen) -> None:
    """A terminal gives Ctrl-C to the child itself; a signal to us alone is passed on."""

    def pass_on(number: int, _: object) -> None:
        if number == signal.SIGTERM or not sys.stdin.isatty():
            child.send_signal(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, pass_on)
