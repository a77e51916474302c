"""Write one self-contained page about a run: the console's, with loss curve and the gate's picture.

python -m pipelines.report [EXECUTION ARN] [--recipe R | --pipeline NAME] [--out report.html]
"""

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress, SpinnerColumn, TextColumn

from pipelines.recipe.cli_options import (
    NOT_GIVEN,
    START,
    EnvOption,
    NewestOfRecipe,
    SetOption,
    pipeline_name,
)
from pipelines.run_report.run_panels import PANELS
from trainyard.console.frozen_page import write
from trainyard.local_state import served
from trainyard.runs.execution import latest_execution
from trainyard.terminal import (
    ExecutionArgument,
    NewestOfPipeline,
    console,
    errors,
    refuse_place,
    run,
)


@served()
def main(
    execution: ExecutionArgument = None,
    recipe: NewestOfRecipe = None,
    overrides: SetOption = NOT_GIVEN,
    environment: EnvOption = None,
    pipeline: NewestOfPipeline = None,
    out: Annotated[Path, typer.Option(help="File of the page.")] = Path("report.html"),
) -> None:
    """Write one self-contained page about a run."""
    refuse_place(out)
    name, region, _ = pipeline_name(recipe, overrides, pipeline, environment)
    arn = execution or latest_execution(name, region, START)
    columns = (SpinnerColumn(), TextColumn("{task.description}"))
    with Progress(
        *columns, console=errors, transient=True, disable=not errors.is_terminal
    ) as progress:
        progress.add_task(f"reading the run and drawing {out}")
        write(arn, out, PANELS, region)
    console.print(f"report {out}")


if __name__ == "__main__":
    run(main)
