"""Watch an execution until it ends; exit status 0 only when it Succeeded.

trainyard watch [EXECUTION ARN] [--pipeline NAME] [--poll SECONDS]
"""

from typing import Annotated

import typer

from trainyard.definition_source import RegionOption
from trainyard.local_state import serve_local_state
from trainyard.runs.execution import START, find_latest_execution
from trainyard.runs.live_watch import ANY, watch_execution
from trainyard.runs.run_display import Display
from trainyard.terminal import ExecutionArgument, NewestOfPipeline

PollOption = Annotated[float, typer.Option("--poll", min=0.1, help="Seconds between two checks.")]


@serve_local_state()
def main(
    execution: ExecutionArgument = None,
    pipeline: NewestOfPipeline = None,
    region: RegionOption = None,
    poll: PollOption = 1.0,
    *,
    display: Display = ANY,
    start: str = START,
) -> None:
    """Watch an execution until it ends; exit status 0 only when it Succeeded."""
    arn = execution or find_latest_execution(pipeline, region, start)
    raise typer.Exit(watch_execution(arn, region=region, poll_seconds=poll, display=display))
