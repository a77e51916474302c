"""Start a pipeline again from one of its steps, and list the steps that are reused.

trainyard start --from STEP [--execution ARN] [--pipeline NAME] [--parameter NAME=VALUE] [--wait]

The step and all steps that depend on it run, with the earlier execution's parameters except those
given. Without --execution the newest execution is reused, of --pipeline or of any pipeline.
"""

from typing import Annotated

import typer

from trainyard.runs import selective_rerun
from trainyard.runs.live_watch import watch
from trainyard.terminal import console, pairs


def main(
    step: Annotated[str, typer.Option("--from", metavar="STEP", help="The first step to run.")],
    execution: Annotated[
        str | None, typer.Option(metavar="ARN", help="The execution to reuse; else the newest.")
    ] = None,
    pipeline: Annotated[
        str | None, typer.Option(metavar="NAME", help="The newest execution of that pipeline.")
    ] = None,
    parameter: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A pipeline parameter for this run."),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Watch it; exit 0 only when it Succeeded.")
    ] = False,
) -> None:
    """Start a pipeline again from one of its steps, and reuse the results that it needs."""
    given = pairs("--parameter", parameter or [])
    found = selective_rerun.plan(step, execution, pipeline)
    for line in found.lines(given):
        console.print(line, highlight=False, markup=False)
    arn = selective_rerun.start(found, given)
    console.print(f"started {arn}", highlight=False)
    if wait:
        raise typer.Exit(watch(arn))
