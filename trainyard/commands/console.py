"""Show all pipelines, runs and models in the browser, from AWS or from the emulator.

trainyard console [--port P] [--region R] [--write]

Prints an address of this machine with a key, and serves until Ctrl-C. It shows what the AWS CLI
would see: the emulator if the environment points at it, otherwise AWS, where it changes nothing
without --write. If no AWS is configured, it shows what trainyard run left in this folder.
"""

import secrets
import signal
import threading
from typing import Annotated

import typer

from trainyard.console.account_cache import Account
from trainyard.console.app_hooks import NONE, Application
from trainyard.console.web_server import serve_console
from trainyard.local_state import serve_local_state
from trainyard.terminal import console

PortOption = Annotated[int, typer.Option(help="Port on 127.0.0.1; 0: any free port.")]
RegionOption = Annotated[str | None, typer.Option(help="Region, when the environment has none.")]
WriteOption = Annotated[
    bool,
    typer.Option("--write", help="On AWS: allow start, stop, approve …, each confirmed first."),
]


@serve_local_state()
def main(
    port: PortOption = 0,
    region: RegionOption = None,
    write: WriteOption = False,
    *,
    application: Application = NONE,
) -> None:
    """Show all pipelines, runs and models in the browser; serves until Ctrl-C."""
    stop_event = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop_event.set())
    account = Account(region)
    account.may_write = write or account.is_emulator
    with serve_console(account, secrets.token_urlsafe(24), port, application) as address:
        console.print(f"console on {address}", highlight=False)
        stop_event.wait()
