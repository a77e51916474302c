"""Watch an execution until it ends; exit status 0 only when it Succeeded.

python -m pipelines.watch [EXECUTION ARN] [--recipe R | --pipeline NAME] [--poll SECONDS]
"""

from typing import Annotated

import typer

from pipelines.recipe.cli_options import (
    NOT_GIVEN,
    START,
    EnvOption,
    NewestOfRecipe,
    SetOption,
    pipeline_name,
)
from pipelines.run_report.gate_lines import DISPLAY
from trainyard.local_state import served
from trainyard.runs.execution import latest_execution
from trainyard.runs.live_watch import watch
from trainyard.terminal import ExecutionArgument, NewestOfPipeline, run


@served()
def main(
    execution: ExecutionArgument = None,
    recipe: NewestOfRecipe = None,
    overrides: SetOption = NOT_GIVEN,
    environment: EnvOption = None,
    pipeline: NewestOfPipeline = None,
    poll: Annotated[float, typer.Option(min=0.1, help="Seconds between two requests.")] = 1.0,
) -> None:
    """Watch an execution until it ends; exit status 0 only when it Succeeded."""
    name, region, _ = pipeline_name(recipe, overrides, pipeline, environment)
    arn = execution or latest_execution(name, region, START)
    raise typer.Exit(watch(arn, region=region, poll_seconds=poll, display=DISPLAY))


if __name__ == "__main__":
    run(main)
