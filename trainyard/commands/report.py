"""Write one self-contained page about a run.

trainyard report [EXECUTION ARN] [--pipeline NAME] [--out report.html]
"""

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress, SpinnerColumn, TextColumn

from trainyard.console.app_hooks import NONE, Application
from trainyard.console.frozen_page import write_frozen_page
from trainyard.definition_source import RegionOption
from trainyard.local_state import serve_local_state
from trainyard.runs.execution import START, find_latest_execution
from trainyard.terminal import ExecutionArgument, NewestOfPipeline, check_writable, console, errors


@serve_local_state()
def main(
    execution: ExecutionArgument = None,
    pipeline: NewestOfPipeline = None,
    region: RegionOption = None,
    out: Annotated[Path, typer.Option(help="File for the page.")] = Path("report.html"),
    *,
    application: Application = NONE,
    start: str = START,
) -> None:
    """Write one self-contained page about a run."""
    check_writable(out)
    arn = execution or find_latest_execution(pipeline, region, start)
    columns = (SpinnerColumn(), TextColumn("{task.description}"))
    hidden = not errors.is_terminal
    with Progress(*columns, console=errors, transient=True, disable=hidden) as progress:
        progress.add_task(f"reading the run and drawing {out}")
        write_frozen_page(arn, out, application.panels, region)
    console.print(f"report {out}")
