"""Say why an execution failed: its first cause, the lines that show it, what to do.

trainyard why [EXECUTION ARN] [--pipeline NAME] [--json]
trainyard why --text FILE     # a log, or a failure reason, from elsewhere; - for standard input

Exit status 0: a cause is named, or nothing failed; 2: no known cause matches; 1: an error.
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from trainyard.common.errors import TrainyardError
from trainyard.language.definition_document import END_STATUSES
from trainyard.local_state import serve_local_state
from trainyard.runs.execution import Execution, find_latest_execution
from trainyard.runs.run_display import print_cause
from trainyard.runs.why.diagnosis import Cause, diagnose_failure
from trainyard.runs.why.logged_exceptions import Evidence, parse_evidence
from trainyard.runs.why.read_evidence import find_causes
from trainyard.terminal import ExecutionArgument, NewestOfPipeline, console, errors

UNKNOWN = 2

LONGEST = 16 << 20
"""Bytes at the end of a text that are examined, because the first cause is near the end."""


def main(
    execution: ExecutionArgument = None,
    pipeline: NewestOfPipeline = None,
    text: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A log, or a failure reason, from elsewhere."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object per failed step.")
    ] = False,
) -> None:
    """Say why an execution failed: its first cause, the lines that show it, what to do."""
    if text is None:
        causes = _find_causes(execution, pipeline, errors if as_json else console)
    else:
        causes = [diagnose_failure(parse_evidence(_read_end_of_file(text)))]
    if not causes:
        return
    for cause in causes:
        if as_json:
            print(json.dumps(asdict(cause)))
        else:
            print_cause(cause)
    raise typer.Exit(0 if any(cause.certainty != "unknown" for cause in causes) else UNKNOWN)


@serve_local_state()
def _find_causes(execution: str | None, pipeline: str | None, out: Console) -> list[Cause]:
    """Return the causes of the failure. If nothing failed, say so and return an empty list."""
    run = Execution(execution or find_latest_execution(pipeline))
    if causes := find_causes(run):
        return causes
    answer = run.describe()
    # No step has failed: the execution itself failed before any step began.
    if reason := answer.get("FailureReason"):
        return [diagnose_failure(Evidence(step="", reason=reason))]
    status = answer["PipelineExecutionStatus"]
    until = "" if status in END_STATUSES else " so far"
    out.print(f"nothing failed{until}: {run.arn} {status}", markup=False, highlight=False)
    return []


def _read_end_of_file(path: Path) -> str:
    """Return the file's text, or for a long file its end, with a note on standard error."""
    try:
        text = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except OSError as error:
        raise TrainyardError(f"--text {path}: {error.strerror}") from None
    if len(text) > LONGEST:
        # The first remaining line may be incomplete.
        text = text[-LONGEST:].partition(b"\n")[2]
        print(f"--text {path}: only its last {LONGEST >> 20} MiB are examined", file=sys.stderr)
    return text.decode("utf-8", "backslashreplace")
