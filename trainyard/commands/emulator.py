"""An AWS on this machine whose SageMaker really runs the steps.

trainyard emulator [--port P] [--state DIR] [--python PATH] [--internet] [--keep-gb N]
                  [--no-capacity TYPE] [--iam enforce|warn|off] [--scp FILE] [--console]
                  [--containers auto|always|never]

Serves until Ctrl-C, and prints the lines that point a shell at it. trainyard run starts an emulator
for a single command.
"""

import contextlib
import logging
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from trainyard.common.process import exclude_from_gc
from trainyard.emulator.client_environment import list_conflicting_variables
from trainyard.emulator.containers.container_engine import Mode as ContainerMode
from trainyard.emulator.containers.node import OWN_PYTHON
from trainyard.emulator.iam.authority import Mode
from trainyard.emulator.s3.object_store import ObjectStore
from trainyard.emulator.sagemaker.pruning import prune_to_size
from trainyard.emulator.server import Endpoint, serve_emulator
from trainyard.local_state import STATE
from trainyard.permissions.policy_documents import Policy, read_control_policies

people = Console(stderr=True, highlight=False, soft_wrap=True)
PortOption = Annotated[int, typer.Option("--port", help="Port on 127.0.0.1; 0: any free port.")]
StateOption = Annotated[Path, typer.Option("--state", help="Directory that holds all state.")]
PythonOption = Annotated[
    Path, typer.Option("--python", help="The interpreter that stands in for container images.")
]
InternetOption = Annotated[
    bool,
    typer.Option("--internet", help="Let jobs reach the internet, through pasta or slirp4netns."),
]
KeepOption = Annotated[
    float,
    typer.Option("--keep-gb", min=0, help="Beyond this size, remove the oldest unneeded results."),
]
ScarceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--no-capacity", metavar="TYPE", help="Instance type whose jobs fail with CapacityError."
    ),
]
IamOption = Annotated[
    Mode,
    typer.Option(
        "--iam",
        help="Whom IAM's policies apply to: derived, the roles of our template; enforce, everyone; "
        "warn, everyone, but only log; off, nobody.",
    ),
]
ControlOption = Annotated[
    Path | None,
    typer.Option("--scp", metavar="FILE", help="A service control policy, or a JSON list of them."),
]
ContainersOption = Annotated[
    ContainerMode | None,
    typer.Option(
        "--containers",
        help="auto: run in podman or docker what this Python cannot stand in for; always: run "
        "every job in its own image; never.",
        show_default="auto",
    ),
]
ConsoleOption = Annotated[
    bool, typer.Option("--console", help="Also run trainyard console, to show it in the browser.")
]
VerboseOption = Annotated[bool, typer.Option("--verbose", help="Log every request on stderr.")]


def main(
    port: PortOption = 0,
    state: StateOption = STATE,
    python: PythonOption = OWN_PYTHON,
    internet: InternetOption = False,
    keep_gb: KeepOption = 5,
    no_capacity: ScarceOption = None,
    iam: IamOption = "derived",
    scp: ControlOption = None,
    containers: ContainersOption = None,
    console: ConsoleOption = False,
    verbose: VerboseOption = False,
) -> None:
    """An AWS on this machine whose SageMaker really runs the steps; serves until Ctrl-C."""
    stop_event = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop_event.set())
    options = {"iam": iam, "control": read_control_policies(scp), "containers": containers}
    with serve_endpoint(
        port, state, python, internet, keep_gb, verbose, no_capacity, **options
    ) as endpoint:
        if names := _list_overriding_variables(endpoint):
            print(f"unset {' '.join(names)}")
        for name, value in endpoint.env.items():
            print(f"export {name}={shlex.quote(value)}")
        sys.stdout.flush()
        people.print(f"emulator on {endpoint.url}; run the lines above in a shell; Ctrl-C stops it")
        with _run_console(endpoint) if console else contextlib.nullcontext():
            stop_event.wait()


@contextlib.contextmanager
def _run_console(endpoint: Endpoint) -> Iterator[None]:
    """Run the console in a separate process during the block. It prints its address on stderr."""
    environment = {
        name: os.environ[name]
        for name in os.environ
        if name not in _list_overriding_variables(endpoint)
    }
    command = [sys.executable, "-m", "trainyard", "console"]
    with subprocess.Popen(command, env=environment | endpoint.env, stdout=sys.stderr) as process:
        try:
            yield
        finally:
            process.terminate()


def _list_overriding_variables(endpoint: Endpoint) -> list[str]:
    """Return the environment variables that would override those of the endpoint."""
    return list_conflicting_variables(os.environ, endpoint.env)


@contextlib.contextmanager
def serve_endpoint(
    port: int,
    state: Path,
    python: Path,
    internet: bool,
    keep_gb: float,
    verbose: bool,
    no_capacity: Sequence[str] | None = None,
    iam: Mode = "derived",
    control: tuple[Policy, ...] = (),
    containers: ContainerMode | None = None,
) -> Iterator[Endpoint]:
    """Serve the endpoint that the options describe during the block; messages go to stderr."""
    logging.basicConfig(level=logging.WARNING, format="emulator: %(message)s")
    if verbose:
        logging.getLogger("trainyard.emulator").setLevel(logging.DEBUG)

    def prepare(state: Path, objects: ObjectStore) -> None:
        """Prune the state before it is served, and print what was removed."""
        for line in prune_to_size(state, objects, keep_gb):
            people.print(line)

    scarce = no_capacity or ()
    with contextlib.ExitStack() as stack:
        # A state of 10,000 executions is a million objects. If every garbage collection visited
        # them, the start would take half as long again, and a request sometimes half a second more.
        with exclude_from_gc():
            endpoint = stack.enter_context(
                serve_emulator(
                    state,
                    port,
                    prepare=prepare,
                    python=python,
                    internet=internet,
                    without_capacity=scarce,
                    iam=iam,
                    control=control,
                    containers=containers,
                )
            )
        yield endpoint
