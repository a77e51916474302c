"""Remove old executions with their results from the emulator's directory.

trainyard prune [--state DIR] [--days N] [--gb N] [--cached] [--inputs] [--dry-run]

Only while no emulator has the directory open. Never what a registered package came from, or refers
to, what a pipeline's latest definition names, or what the step cache may still answer from.
"""

import time
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from trainyard.emulator.damaged_state import set_aside
from trainyard.emulator.pruning import DAY, GB, choose, remove
from trainyard.emulator.storage.object_store import ObjectStore


def main(
    state: Annotated[Path, typer.Option(help="The emulator's directory.")] = Path(".trainyard/aws"),
    days: Annotated[float, typer.Option(min=0, help="Whatever is older goes.")] = 30,
    gb: Annotated[
        float | None, typer.Option(min=0, help="The oldest goes until so much is left.")
    ] = None,
    cached: Annotated[bool, typer.Option(help="Also what the step cache may answer from.")] = False,
    inputs: Annotated[bool, typer.Option(help="Also what only jobs that go have read.")] = False,
    dry_run: Annotated[bool, typer.Option(help="Say what would go, and remove nothing.")] = False,
) -> None:
    """Say what goes and how much it is; exit status 1 when an emulator has the directory open."""
    console = Console(highlight=False, soft_wrap=True)
    if not (state / "s3").is_dir():
        console.print(f"{state}: there is nothing")
        return
    with closing(ObjectStore(state / "s3")) as store:
        set_aside(state)
        limit = None if gb is None else int(gb * GB)
        found = choose(state, store, days * DAY, limit, cached=cached, inputs=inputs)
        if not dry_run:
            remove(found, state, store)
    for unit in found.units:
        made = time.strftime("%Y-%m-%d %H:%M", time.localtime(unit.made))
        console.print(f"{made}  {unit.name}, {len(unit.jobs)} jobs")
    console.print(found.told("would go" if dry_run else "removed"))
