"""Read what happened in an execution from the service: steps, jobs, logs and outputs.

Also stop it, find the newest ones, and respond to callback steps.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

from botocore.exceptions import ClientError

from trainyard.aws_clients import create_client, read_error_code, service_errors
from trainyard.common.errors import ServiceError
from trainyard.language.step_types import STEP_TYPES

START = "StartPipelineExecution"
"""Default for the command or operation that messages recommend for starting an execution."""
LONGEST = 3072  # largest number of characters of a PipelineExecutionDescription
LOG_GROUPS = {job.api: job.log_group for kind in STEP_TYPES.values() if (job := kind.sole_job)}
"""Mapping of the member of a step's Metadata that names a job to the log group of such jobs."""

TUNING = "TuningJob"
"""Member of a step's Metadata that names a tuning job."""
SUMMARIES_KEY = "TrainingJobSummaries"
"""Member of ListTrainingJobsForHyperParameterTuningJob's response."""

MISSING = {"timestamp": 0, "message": ""}
"""Values for members of a log event that the service may leave out."""


def compute_event_id(event: Mapping[str, Any]) -> str:
    """Return an ID of a log event, ``<milliseconds>-<8 hexadecimal digits>``: its time and a digest
    of its text.

    It is valid as long as the log is kept, while CloudWatch's own tokens are valid for a day.
    """
    timestamp, message = event.get("timestamp", 0), event.get("message", "")
    return f"{timestamp}-{hashlib.sha256(message.encode('utf-8', 'replace')).hexdigest()[:8]}"


CHECKS = {
    kind.metadata_key: kind.job.api
    for kind in STEP_TYPES.values()
    if kind.job and not kind.sole_job
}
"""Mapping of the member of a check step's Metadata to the kind of the job that it started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step of an execution, as ListPipelineExecutionSteps reports it."""

    name: str
    title: str
    status: str
    started: datetime | None
    ended: datetime | None
    reason: str
    cached: bool
    metadata: Mapping[str, Any]
    reused: bool = False
    """True if a selective execution took its result from an earlier one."""
    source: str = ""
    """ARN of the execution whose result was used, cached or reused; empty if the step ran."""
    attempts: int = 1
    """Number of times that it was started: more than 1 if a retry policy started it again."""
    loop: str = ""
    """Name of the ForEach step if this is a step of its body; else empty."""

    @property
    def seconds(self) -> float | None:
        """Seconds from the step's start to its end, or to now while it runs; None before it."""
        if self.started is None:
            return None
        return ((self.ended or datetime.now(UTC)) - self.started).total_seconds()

    @property
    def job(self) -> tuple[str, str] | None:
        """Kind and name of its job, such as ``("TrainingJob", name)``; None if it has none."""
        for kind in LOG_GROUPS:
            if arn := self.metadata.get(kind, {}).get("Arn"):
                return kind, arn.rpartition("/")[2]
        for key, kind in CHECKS.items():
            if arn := self.metadata.get(key, {}).get("CheckJobArn"):
                return kind, arn.rpartition("/")[2]
        return None

    @property
    def tuning_job(self) -> str | None:
        """Name of its tuning job; None if it has none."""
        arn = self.metadata.get(TUNING, {}).get("Arn")
        return arn and arn.rpartition("/")[2]

    @property
    def charged_job(self) -> tuple[str, str] | None:
        """Kind and name of the job or tuning job that it is charged for; None if it has none."""
        return self.job or ((TUNING, self.tuning_job) if self.tuning_job else None)


def describe_tuning_job(sagemaker: Any, tuning_job: str) -> dict[str, Any]:
    """Return DescribeHyperParameterTuningJob's response, with the summaries of all its training
    jobs, in the order of their creation, added as ``TrainingJobSummaries``.

    Raises:
        ServiceError: the job no longer exists, or AWS refuses.
    """
    with service_errors(f"reading tuning job {tuning_job}"):
        answer = sagemaker.describe_hyper_parameter_tuning_job(
            HyperParameterTuningJobName=tuning_job
        )
    return answer | {SUMMARIES_KEY: _list_trainings(sagemaker, tuning_job)}


def _list_trainings(sagemaker: Any, tuning_job: str) -> list[dict[str, Any]]:
    """Return the summaries of a tuning job's training jobs, in the order of their creation."""
    with service_errors(f"listing the training jobs of {tuning_job}"):
        pages = sagemaker.get_paginator(
            "list_training_jobs_for_hyper_parameter_tuning_job"
        ).paginate(HyperParameterTuningJobName=tuning_job, SortBy="CreationTime",
                   SortOrder="Ascending")  # fmt: skip
        return [item for page in pages for item in page[SUMMARIES_KEY]]


class Execution:
    """An execution of a pipeline on AWS or on the emulator. Every method call asks the service
    again; nothing is cached.
    """

    def __init__(
        self,
        arn: str,
        region: str | None = None,
        make: Callable[[str, str | None], Any] = create_client,
    ) -> None:
        """Create the reader of one execution.

        Args:
            arn: ARN of the execution.
            region: region of the clients; None for that of the environment.
            make: returns the client for a service and a region. Code that reads many executions
                passes one that returns shared clients.
        """
        self.arn, self._region, self._make = arn, region, make
        self._sagemaker = make("sagemaker", region)

    @cached_property
    def _logs(self) -> Any:
        return self._make("logs", self._region)

    @cached_property
    def _s3(self) -> Any:
        return self._make("s3", self._region)

    def _get_client(self, service: str, _: str | None) -> Any:
        """Return this execution's client of a service, to share it, because creating a client takes
        tens of milliseconds.
        """
        return getattr(self, f"_{service}")

    def describe(self) -> dict[str, Any]:
        """Return DescribePipelineExecution's response.

        Raises:
            ServiceError: the execution does not exist, or AWS cannot be reached.
        """
        with service_errors(f"reading execution {self.arn}"):
            return self._sagemaker.describe_pipeline_execution(PipelineExecutionArn=self.arn)

    def stop(self, reason: str) -> None:
        """Stop the execution, and write the reason into its description.

        Raises:
            ServiceError: it has ended, or AWS refuses.
        """
        description = self.describe().get("PipelineExecutionDescription")
        with service_errors(f"stopping execution {self.arn}"):
            # StopPipelineExecution does not accept a reason.
            self._sagemaker.update_pipeline_execution(
                PipelineExecutionArn=self.arn,
                PipelineExecutionDescription="; ".join(filter(None, [reason, description]))[
                    :LONGEST
                ],
            )
            self._sagemaker.stop_pipeline_execution(PipelineExecutionArn=self.arn)

    def list_steps(self) -> list[Step]:
        """Return the steps that have started, in the order in which they started."""
        with service_errors(f"listing the steps of {self.arn}"):
            pages = self._sagemaker.get_paginator("list_pipeline_execution_steps").paginate(
                PipelineExecutionArn=self.arn, SortOrder="Ascending"
            )
            items = [item for page in pages for item in page.get("PipelineExecutionSteps", [])]
        return [_make_step(item) for item in items]

    def list_trainings(self, tuning_job: str) -> list[dict[str, Any]]:
        """Return the summaries of a tuning job's training jobs, in the order of their creation."""
        return _list_trainings(self._sagemaker, tuning_job)

    def describe_training_job(self, name: str) -> dict[str, Any]:
        """Return DescribeTrainingJob's response; its FinalMetricDataList has the latest metrics."""
        with service_errors(f"reading training job {name}"):
            return self._sagemaker.describe_training_job(TrainingJobName=name)

    def read_definition(self) -> dict[str, Any]:
        """Return the definition with which the execution started; its pipeline's may have changed.

        It is empty if AWS returns none.

        Raises:
            ServiceError: the execution does not exist, or AWS cannot be reached.
        """
        with service_errors(f"reading the definition of {self.arn}"):
            answer = self._sagemaker.describe_pipeline_definition_for_execution(
                PipelineExecutionArn=self.arn
            )
        return json.loads(answer.get("PipelineDefinition") or "{}")

    def read_parameters(self) -> dict[str, str]:
        """Return a mapping of the execution's parameter names to their values, given or default.

        Raises:
            ServiceError: the execution does not exist, or AWS cannot be reached.
        """
        with service_errors(f"reading the parameters of {self.arn}"):
            pages = self._sagemaker.get_paginator("list_pipeline_parameters_for_execution")
            items = [
                item
                for page in pages.paginate(PipelineExecutionArn=self.arn)
                for item in page.get("PipelineParameters", ())
            ]
        return {
            parameter["Name"]: parameter["Value"]
            for parameter in items
            if "Name" in parameter and "Value" in parameter
        }

    def list_earlier(self, limit: int) -> list["Execution"]:
        """Return up to ``limit`` executions of its pipeline that were started before it.

        The newest is the first.
        """
        description = self.describe()
        with service_errors(f"listing executions before {self.arn}"):
            # Ask for one more, because the service rounds the time and may list this execution.
            summaries = self._sagemaker.list_pipeline_executions(
                PipelineName=description["PipelineArn"].rpartition("/")[2],
                CreatedBefore=description["CreationTime"],
                SortBy="CreationTime",
                SortOrder="Descending",
                MaxResults=limit + 1,
            )["PipelineExecutionSummaries"]
        others = [summary["PipelineExecutionArn"] for summary in summaries]
        executions = [
            Execution(arn, self._region, self._get_client) for arn in others if arn != self.arn
        ]
        return executions[:limit]

    def read_last_lines(self, step: Step, count: int) -> dict[str, list[str]]:
        """Return a mapping of host (``algo-1``) to the last ``count`` lines that it logged."""
        events_by_host = self.read_last_events(step, count)
        return {
            host: [event.get("message", "") for event in events]
            for host, events in events_by_host.items()
        }

    def read_last_events(self, step: Step, count: int) -> dict[str, list[dict[str, Any]]]:
        """Return a mapping of host to the last ``count`` events of its log.

        Each event has ``timestamp`` and ``message``.
        """
        events_by_host = {}
        for stream in self._list_log_streams(step):
            # The stream of a training job is <job>/algo-1-<time>; transform jobs also have a stream
            # <job>/<host>/data-log.
            host = stream.partition("/")[2]
            match = re.fullmatch(r"(algo-\d+)(?:-\d+)?", host)
            answer = self._fetch_log_events(step, stream, limit=count, startFromHead=False)
            events = answer.get("events", [])
            events_by_host[match[1] if match else host] = [{**MISSING, **event} for event in events]
        return events_by_host

    def iter_lines(self, step: Step) -> Iterator[str]:
        """Iterate over all log lines of the step's first instance, which has rank 0, from the
        beginning.
        """
        return (event["message"] for event in self.iter_events(step))

    def iter_events(self, step: Step) -> Iterator[dict[str, Any]]:
        """Iterate over all log events of the step's first instance, from the beginning.

        Each event has ``timestamp`` and ``message``.
        """
        for stream in self._list_log_streams(step)[:1]:
            token: str | None = None
            while True:
                more = {"nextToken": token} if token else {}
                page = self._fetch_log_events(step, stream, startFromHead=True, **more)
                yield from ({**MISSING, **event} for event in page.get("events", []))
                # At the end CloudWatch returns the same token again. An empty page is not the end.
                if page.get("nextForwardToken") in (token, None):
                    break
                token = page["nextForwardToken"]

    def _list_log_streams(self, step: Step) -> list[str]:
        """Return the names of the log streams of the step's instances; empty before the job has
        logged anything.
        """
        if step.job is None:
            return []
        kind, job = step.job
        with service_errors(f"looking for the logs of {job}"):
            try:
                response = self._logs.describe_log_streams(
                    logGroupName=LOG_GROUPS[kind], logStreamNamePrefix=f"{job}/"
                )
            except ClientError as error:
                if read_error_code(error) == "ResourceNotFoundException":
                    return []
                raise
        names = (stream.get("logStreamName") for stream in response.get("logStreams", []))
        return [name for name in names if name]

    def _fetch_log_events(self, step: Step, stream: str, **options: Any) -> dict[str, Any]:
        """Return GetLogEvents' response for a stream of the step's job, with these options."""
        assert step.job is not None  # one of its streams was found
        kind, job = step.job
        with service_errors(f"reading the log of {job}"):
            return self._logs.get_log_events(
                logGroupName=LOG_GROUPS[kind], logStreamName=stream, **options
            )

    def read_output_json(self, step: Step, output: str, file: str) -> dict[str, Any] | None:
        """Return the content of a JSON file in an output of a processing step.

        Return None if the step has no processing job, or no such output, or the file does not
        exist.

        Args:
            step: the step.
            output: name of the output.
            file: path of the file in it.
        """
        if step.job is None or step.job[0] != "ProcessingJob":
            return None
        with service_errors(f"reading {file} of step {step.name}"):
            job = self._sagemaker.describe_processing_job(ProcessingJobName=step.job[1])
            outputs = job.get("ProcessingOutputConfig", {}).get("Outputs", ())
            uris = {o["OutputName"]: o["S3Output"]["S3Uri"] for o in outputs if "S3Output" in o}
            if output not in uris:
                return None
            url = urlsplit(f"{uris[output]}/{file}")
            try:
                got = self._s3.get_object(Bucket=url.netloc, Key=url.path.lstrip("/"))
            except ClientError as error:
                if read_error_code(error) == "NoSuchKey":
                    return None
                raise
            return json.loads(got["Body"].read())


def _make_step(item: Mapping[str, Any]) -> Step:
    """Create a ``Step`` from an item of ListPipelineExecutionSteps."""
    cache_hit, selective_result = (
        item.get("CacheHitResult", {}),
        item.get("SelectiveExecutionResult"),
    )
    return Step(
        name=item.get("StepName", ""),
        title=item.get("StepDisplayName") or item.get("StepName", ""),
        status=item.get("StepStatus", "Unknown"),
        started=item.get("StartTime"),
        ended=item.get("EndTime"),
        reason=item.get("FailureReason", ""),
        cached=bool(cache_hit.get("SourcePipelineExecutionArn")),  # AWS has "" if the step ran
        metadata=item.get("Metadata", {}),
        reused=selective_result is not None,
        source=(cache_hit or selective_result or {}).get("SourcePipelineExecutionArn", ""),
        attempts=item.get("AttemptCount") or 1,
        loop=item.get("IterationContext", {}).get("ParentStepName", ""),
    )


def find_latest_execution(
    pipeline: str | None, region: str | None = None, start: str = START
) -> str:
    """Return the ARN of the newest execution of ``pipeline``, or of any pipeline if that is None.

    ``start`` is the command that the error message recommends if there is no execution.

    Raises:
        ServiceError: there is no execution yet, or AWS cannot be reached.
    """
    with service_errors("looking for the newest execution"):
        sagemaker = create_client("sagemaker", region)
        names = [pipeline] if pipeline else _list_pipelines(sagemaker)
        newest: list[dict[str, Any]] = []
        for name in names:
            newest += sagemaker.list_pipeline_executions(
                PipelineName=name, SortBy="CreationTime", SortOrder="Descending", MaxResults=1
            )["PipelineExecutionSummaries"]
    if not newest:
        without = f"{pipeline} has no execution" if pipeline else "no pipeline has an execution"
        raise ServiceError(f"{without} to watch; start one with {start}")
    return max(newest, key=lambda summary: summary["StartTime"])["PipelineExecutionArn"]


def list_executions(region: str | None = None) -> list[str]:
    """Return the ARNs of all executions of all pipelines.

    Raises:
        ServiceError: AWS refused, or cannot be reached.
    """
    with service_errors("listing all executions"):
        sagemaker = create_client("sagemaker", region)
        pages = sagemaker.get_paginator("list_pipeline_executions")
        return [
            summary["PipelineExecutionArn"]
            for name in _list_pipelines(sagemaker)
            for page in pages.paginate(PipelineName=name)
            for summary in page["PipelineExecutionSummaries"]
        ]


def _list_pipelines(sagemaker: Any) -> list[str]:
    pages = sagemaker.get_paginator("list_pipelines").paginate()
    return [item["PipelineName"] for page in pages for item in page.get("PipelineSummaries", ())]


# List the callback steps that wait for a response, on AWS or the emulator, and send responses.

RUNS = ("Executing", "Stopping")


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingCallback:
    """A callback step that waits for a response."""

    token: str
    step: str
    execution: str
    queue: str
    since: datetime | None
    stopping: bool
    """True if its execution is being stopped, and waits for the response."""


def iter_waiting_callbacks(region: str | None = None) -> Iterator[WaitingCallback]:
    """Iterate over all waiting callback steps of all pipelines.

    Raises:
        ServiceError: AWS cannot be reached, or refuses.
    """
    with service_errors("looking for callbacks"):
        sagemaker = create_client("sagemaker", region)
        listing = sagemaker.get_paginator("list_pipeline_executions")
        running = [
            item["PipelineExecutionArn"]
            for name in _list_pipelines(sagemaker)
            for page in listing.paginate(PipelineName=name)
            for item in page["PipelineExecutionSummaries"]
            if item["PipelineExecutionStatus"] in RUNS
        ]
    for arn in running:
        for step in Execution(arn, region).list_steps():
            callback = step.metadata.get("Callback", {})
            if callback and step.status in RUNS:
                yield WaitingCallback(
                    token=callback["CallbackToken"],
                    step=step.name,
                    execution=arn,
                    queue=callback.get("SqsQueueUrl", ""),
                    since=step.started,
                    stopping=step.status == "Stopping",
                )


def report_success(token: str, outputs: Mapping[str, str], region: str | None = None) -> str:
    """Respond to a callback step with its output parameters, so that the execution continues.

    Return the ARN of the execution.

    Raises:
        ServiceError: no step waits with that token, or it needs other outputs.
    """
    output_parameters = [{"Name": name, "Value": value} for name, value in outputs.items()]
    return _send_response(
        "success", region, CallbackToken=token, OutputParameters=output_parameters
    )


def report_failure(token: str, reason: str, region: str | None = None) -> str:
    """Send a failure to a waiting callback step; return the ARN of its execution.

    Raises:
        ServiceError: no step waits with that token.
    """
    return _send_response("failure", region, CallbackToken=token, FailureReason=reason)


def _send_response(result: str, region: str | None, **request: Any) -> str:
    """Send a callback response (``result``: success or failure); return the execution's ARN."""
    with service_errors(f"answering callback {request['CallbackToken']}"):
        send = getattr(create_client("sagemaker", region), f"send_pipeline_execution_step_{result}")
        return send(**request)["PipelineExecutionArn"]
