"""Write one self-contained page about a run.

trainyard report [EXECUTION ARN] [--pipeline NAME] [--out report.html]
"""

from pathlib import Path
from typing import Annotated

import typer

from trainyard.console.frozen_page import write
from trainyard.local_state import served
from trainyard.runs.execution import latest_execution
from trainyard.terminal import ExecutionArgument, NewestOfPipeline, console, refuse_place


@served()
def main(
    execution: ExecutionArgument = None,
    pipeline: NewestOfPipeline = None,
    out: Annotated[Path, typer.Option(help="File for the page.")] = Path("report.html"),
) -> None:
    """Write one self-contained page about a run."""
    refuse_place(out)
    write(execution or latest_execution(pipeline), out)
    console.print(f"report {out}")
