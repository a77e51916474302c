"""Watch an execution until it ends; exit status 0 only when it Succeeded.

trainyard watch [EXECUTION ARN] [--pipeline NAME] [--poll SECONDS]
"""

from typing import Annotated

import typer

from trainyard.local_state import served
from trainyard.runs.execution import latest_execution
from trainyard.runs.live_watch import watch
from trainyard.terminal import ExecutionArgument, NewestOfPipeline

PollOption = Annotated[float, typer.Option("--poll", min=0.1, help="Seconds between two looks.")]


@served()
def main(
    execution: ExecutionArgument = None,
    pipeline: NewestOfPipeline = None,
    poll: PollOption = 1.0,
) -> None:
    """Watch an execution until it ends; exit status 0 only when it Succeeded."""
    raise typer.Exit(watch(execution or latest_execution(pipeline), poll_seconds=poll))
