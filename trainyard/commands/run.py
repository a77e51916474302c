"""Run a command against an AWS of its own, and wait for what it started there.

trainyard run [--state DIR] [--python PATH] [--put s3://BUCKET/KEY=FILE] [--iam enforce|warn|off]
              [--containers auto|always|never] [--no-wait] -- COMMAND ...

The command's environment points at the embedded AWS instead of the real one. If the command ends
with status 0, executions and jobs that still run are waited for. The status is then 1 if an
execution that the command started, or a job that was waited for, has failed. If the command fails,
or with --no-wait, executions and jobs that still run are stopped.
"""

import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from botocore.exceptions import WaiterError

from trainyard.aws_clients import create_client
from trainyard.commands.emulator import (
    ContainersOption,
    ControlOption,
    IamOption,
    InternetOption,
    KeepOption,
    PortOption,
    PythonOption,
    ScarceOption,
    StateOption,
    VerboseOption,
    people,
    serve_endpoint,
)
from trainyard.common.errors import EmulatorError
from trainyard.emulator.client_environment import apply_environment
from trainyard.emulator.containers.node import OWN_PYTHON
from trainyard.emulator.sagemaker.jobs.job import KINDS
from trainyard.language.definition_document import END_STATUSES
from trainyard.local_state import STATE
from trainyard.permissions.policy_documents import read_control_policies
from trainyard.runs.live_watch import watch_execution

REGION_NAMES = ("AWS_REGION", "AWS_DEFAULT_REGION")
SETTINGS = {"allow_interspersed_args": False}  # options after COMMAND belong to it


def main(
    command: Annotated[list[str], typer.Argument(help="Command to run, with its arguments.")],
    port: PortOption = 0,
    state: StateOption = STATE,
    python: PythonOption = OWN_PYTHON,
    wait: Annotated[
        bool,
        typer.Option("--wait/--no-wait", help="Wait for executions that COMMAND leaves running."),
    ] = True,
    put_: Annotated[
        list[str] | None,
        typer.Option("--put", help="s3://BUCKET/KEY=FILE: upload a file or folder there first."),
    ] = None,
    internet: InternetOption = False,
    keep_gb: KeepOption = 5,
    no_capacity: ScarceOption = None,
    iam: IamOption = "derived",
    scp: ControlOption = None,
    containers: ContainersOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Run COMMAND against an AWS of its own, and wait for what it started there."""
    puts = [parse_put(text) for text in put_ or ()]
    with (
        serve_endpoint(
            *(port, state, python, internet, keep_gb, verbose, no_capacity),
            iam=iam,
            control=read_control_policies(scp),
            containers=containers,
        ) as endpoint,
        apply_environment(endpoint.env),
    ):
        if state == STATE:
            people.print(
                "to look at it meanwhile, run trainyard console, watch or why in this folder"
            )
        for line in upload_run_files(create_client("s3"), puts):
            people.print(line, markup=False)
        start_time = datetime.now(UTC)
        status = command_status = _run_command(command)
        # The command may have used several regions, each of which has executions of its own.
        for region in endpoint.app.worlds.names:
            with apply_environment(endpoint.env | {name: region for name in REGION_NAMES}):
                if command_status:
                    _print_failures(start_time)
                elif wait:
                    status = status or _wait_for_executions(start_time)
        for line in describe_missing_buckets(endpoint.app.objects) if status else ():
            people.print(line, markup=False)
    raise typer.Exit(status)


def _run_command(command: list[str]) -> int:
    """Run the command; return its exit status, or 128 + N if signal N ended it, as in a shell."""
    # Signals are for the child process. Until it exists, they are only recorded.
    early: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: early.append(number))
    try:
        child = subprocess.Popen(command)
    except OSError as failure:
        people.print(f"error: cannot run {command[0]}: {failure.strerror}", markup=False)
        return 127

    def pass_on(number: int, _: object) -> None:
        """Pass a signal on to the child process."""
        # In a terminal, Ctrl-C reaches the child anyway; other signals do not.
        if number == signal.SIGTERM or not sys.stdin.isatty():
            child.send_signal(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, pass_on)
    # A signal was received before the child existed.
    if early:
        child.terminate()
    status = child.wait()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    return status if status >= 0 else 128 - status


def _wait_for_executions(start_time: datetime) -> int:
    """Wait for all executions and jobs that still run.

    Return 1 if an execution started since ``start_time``, or one that was waited for, or a job has
    failed, otherwise 0.
    """
    sagemaker = create_client("sagemaker")
    status = 0
    for execution in list(_iter_executions(sagemaker)):
        arn, state = execution["PipelineExecutionArn"], execution["PipelineExecutionStatus"]
        if state not in END_STATUSES:
            people.print(f"waiting for {arn}")
            status = watch_execution(arn, stop_on_interrupt=True) or status
        elif execution["StartTime"] >= start_time:
            reason = execution.get("PipelineExecutionFailureReason")
            people.print(f"{arn} {state}{f': {reason}' if reason else ''}")
            status = status or int(state != "Succeeded")
    return _wait_for_jobs(sagemaker) or status


def _print_failures(start_time: datetime) -> None:
    """Print why executions started since ``start_time`` failed; the command often does not print
    it.
    """
    for execution in _iter_executions(create_client("sagemaker")):
        if (
            execution["StartTime"] >= start_time
            and execution["PipelineExecutionStatus"] == "Failed"
        ):
            reason = execution.get("PipelineExecutionFailureReason", "")
            people.print(f"{execution['PipelineExecutionArn']} Failed: {reason}", markup=False)


def _iter_executions(sagemaker: Any) -> Iterator[dict[str, Any]]:
    """Return an iterator over all executions of all pipelines, in the order of their start."""
    pages = sagemaker.get_paginator("list_pipelines").paginate()
    names = [item["PipelineName"] for page in pages for item in page["PipelineSummaries"]]
    listing = sagemaker.get_paginator("list_pipeline_executions")
    pages = (page for name in names for page in listing.paginate(PipelineName=name))
    summaries = [item for page in pages for item in page["PipelineExecutionSummaries"]]
    return iter(sorted(summaries, key=lambda item: item["StartTime"]))


def _wait_for_jobs(sagemaker: Any) -> int:
    """Wait for jobs that were started outside a pipeline; return 1 if one of them failed."""
    status = 0
    for kind in KINDS:
        pages = sagemaker.get_paginator(f"list_{kind.lower()}_jobs").paginate(
            StatusEquals="InProgress"
        )
        for job in [job for page in pages for job in page[f"{kind}JobSummaries"]]:
            name = job[f"{kind}JobName"]
            people.print(f"waiting for {kind.lower()} job {name}")
            waiter = sagemaker.get_waiter(f"{kind.lower()}_job_completed_or_stopped")
            try:
                # By default botocore's waiters check only every minute or two, and give up. Here
                # the only limit is the job's own.
                request = {f"{kind}JobName": name}
                waiter.wait(**request, WaiterConfig={"Delay": 1, "MaxAttempts": sys.maxsize})
            except WaiterError as failure:
                people.print(f"{name} {failure.last_response.get('FailureReason', failure)}")
                status = 1
    return status


# The embedded AWS does not contain public buckets (s3://sagemaker-sample-files,
# s3://sagemaker-example-files-prod-<region>), and fetches nothing from the internet. So --put
# uploads what a command needs.


@dataclass(frozen=True, slots=True)
class Put:
    """A value ``s3://bucket/key=FILE`` of --put. The files of a folder are put below the key."""

    bucket: str
    key: str
    source: Path

    def iter_files(self) -> Iterator[tuple[Path, str]]:
        """Yield (file, key) of each file."""
        if self.source.is_file():
            name = self.source.name if not self.key or self.key.endswith("/") else ""
            yield self.source, f"{self.key}{name}"
            return
        prefix = f"{self.key.rstrip('/')}/" if self.key else ""
        for path in sorted(self.source.rglob("*")):
            if path.is_file():
                yield path, f"{prefix}{path.relative_to(self.source).as_posix()}"


def parse_put(text: str) -> Put:
    """Parse a value of ``--put``, such as ``s3://bucket/key=FILE``.

    Raises:
        EmulatorError: the text is not of the form s3://bucket/key=FILE, or FILE does not exist.
    """
    address, equals, file = text.partition("=")
    scheme, _, rest = address.partition("://")
    bucket, _, key = rest.partition("/")
    if scheme != "s3" or not bucket or not equals:
        raise EmulatorError(f"--put {text}: expected s3://bucket/key=FILE, e.g. s3://b/a.csv=a.csv")
    source = Path(file).expanduser()
    if not source.exists():
        raise EmulatorError(f"--put {text}: {file} does not exist on this machine")
    return Put(bucket, key, source)


def upload_run_files(s3: Any, puts: list[Put]) -> Iterator[str]:
    """Create the buckets and upload the files; yield a line for each ``--put``."""
    for upload in puts:
        s3.create_bucket(Bucket=upload.bucket)
        count = 0
        for file, key in upload.iter_files():
            s3.upload_file(str(file), upload.bucket, key)
            count += 1
        yield f"put s3://{upload.bucket}/{upload.key}: {count} object{'s' * (count != 1)}"


def describe_missing_buckets(objects: Any) -> list[str]:
    """Return messages about objects that were requested from buckets that do not exist here."""
    missing = [address for address in objects.missing_buckets if not objects.has_bucket(address[0])]
    names = [f"s3://{bucket}/{key}" if key else f"s3://{bucket}" for bucket, key in missing]
    if not names:
        return []
    text = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    hint = f"put what it needs there: trainyard run --put {names[0]}=FILE_OR_FOLDER -- ..."
    return [f"not in this AWS, which has no public buckets: {text}", hint]
