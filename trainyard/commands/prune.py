"""Remove old executions with their results from the emulator's directory.

trainyard prune [--state DIR] [--days N] [--gb N] [--cached] [--inputs] [--dry-run]

It works only while no emulator has the directory open. It keeps everything that a registered
package was made from or refers to, that a pipeline's latest definition names, or that the step
cache may reuse.
"""

import time
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from trainyard.emulator.damaged_state import set_aside_damaged_documents
from trainyard.emulator.s3.object_store import ObjectStore
from trainyard.emulator.sagemaker.pruning import DAY, GB, execute_pruning_plan, plan_pruning


def main(
    state: Annotated[Path, typer.Option(help="The emulator's directory.")] = Path(".trainyard/aws"),
    days: Annotated[float, typer.Option(min=0, help="Remove executions older than this.")] = 30,
    gb: Annotated[
        float | None, typer.Option(min=0, help="Remove the oldest until this much is left.")
    ] = None,
    cached: Annotated[
        bool, typer.Option(help="Also remove results that the step cache may reuse.")
    ] = False,
    inputs: Annotated[
        bool, typer.Option(help="Also remove inputs that only removed jobs have read.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option(help="Print what would be removed, and remove nothing.")
    ] = False,
) -> None:
    """Remove old executions and print their size; exit 1 if an emulator has the directory open."""
    console = Console(highlight=False, soft_wrap=True)
    if not (state / "s3").is_dir():
        console.print(f"{state}: there is no state of an emulator")
        return
    with closing(ObjectStore(state / "s3")) as store:
        set_aside_damaged_documents(state)
        limit = None if gb is None else int(gb * GB)
        selection = plan_pruning(
            state, store, days * DAY, limit, include_cached=cached, inputs=inputs
        )
        if not dry_run:
            execute_pruning_plan(selection, state, store)
    for unit in selection.units:
        creation_time = time.strftime("%Y-%m-%d %H:%M", time.localtime(unit.creation_time))
        console.print(f"{creation_time}  {unit.name}, {len(unit.jobs)} jobs")
    console.print(selection.summarize("would be removed" if dry_run else "removed"))
