"""What happened in an execution, read from the service: steps, metrics, logs, verdict, package."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from botocore.exceptions import ClientError

from trainyard.common.errors import ServiceError
from trainyard.language.step_types import STEP_TYPES
from trainyard.service import client, error_code, service_errors

LONGEST = 3072  # characters of a PipelineExecutionDescription
LOG_GROUPS = {job.api: job.log_group for kind in STEP_TYPES.values() if (job := kind.sole_job)}
"""Member of a step's Metadata that names a job → the log group of such jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of an execution, as ListPipelineExecutionSteps tells it."""

    name: str
    title: str
    status: str
    started: datetime | None
    ended: datetime | None
    reason: str
    cached: bool
    metadata: Mapping[str, Any]
    reused: bool = False
    """Whether a selective execution took its result from an earlier one."""

    @property
    def seconds(self) -> float | None:
        """Seconds that the step has run, or ran; None before it starts."""
        if self.started is None:
            return None
        return ((self.ended or datetime.now(UTC)) - self.started).total_seconds()

    @property
    def job(self) -> tuple[str, str] | None:
        """Kind and name of its job, such as ``("TrainingJob", name)``; None without one."""
        for kind in LOG_GROUPS:
            if arn := self.metadata.get(kind, {}).get("Arn"):
                return kind, arn.rpartition("/")[2]
        return None


class Execution:
    """An execution of a pipeline on AWS or on the emulator; every call asks the service anew."""

    def __init__(self, arn: str, region: str | None = None) -> None:
        self.arn, self._region = arn, region
        self._sagemaker = client("sagemaker", region)
        self._logs = client("logs", region)
        self._s3 = client("s3", region)

    def describe(self) -> dict[str, Any]:
        """DescribePipelineExecution's answer.

        Raises:
            ServiceError: there is no such execution, or AWS cannot be reached.
        """
        with service_errors(f"reading execution {self.arn}"):
            return self._sagemaker.describe_pipeline_execution(PipelineExecutionArn=self.arn)

    def stop(self, why: str) -> None:
        """Stop it; its description says why, since a stop itself keeps no reason.

        Raises:
            ServiceError: it has ended, or AWS refuses.
        """
        said = self.describe().get("PipelineExecutionDescription")
        with service_errors(f"stopping execution {self.arn}"):
            self._sagemaker.update_pipeline_execution(
                PipelineExecutionArn=self.arn,
                PipelineExecutionDescription="; ".join(filter(None, [why, said]))[:LONGEST],
            )
            self._sagemaker.stop_pipeline_execution(PipelineExecutionArn=self.arn)

    def steps(self) -> list[Step]:
        """The steps that have begun, in the order in which they began."""
        with service_errors(f"listing the steps of {self.arn}"):
            pages = self._sagemaker.get_paginator("list_pipeline_execution_steps").paginate(
                PipelineExecutionArn=self.arn, SortOrder="Ascending"
            )
            found = [item for page in pages for item in page["PipelineExecutionSteps"]]
        return [
            Step(
                name=item["StepName"],
                title=item.get("StepDisplayName") or item["StepName"],
                status=item["StepStatus"],
                started=item.get("StartTime"),
                ended=item.get("EndTime"),
                reason=item.get("FailureReason", ""),
                cached="SourcePipelineExecutionArn" in item.get("CacheHitResult", {}),
                metadata=item.get("Metadata", {}),
                reused="SelectiveExecutionResult" in item,
            )
            for item in found
        ]

    def training_job(self, name: str) -> dict[str, Any]:
        """DescribeTrainingJob's answer; FinalMetricDataList holds the latest metrics."""
        with service_errors(f"reading training job {name}"):
            return self._sagemaker.describe_training_job(TrainingJobName=name)

    def earlier(self, limit: int) -> list["Execution"]:
        """The executions of its pipeline that were started before it, the newest first."""
        mine = self.describe()
        with service_errors(f"listing executions before {self.arn}"):
            listed = self._sagemaker.list_pipeline_executions(
                PipelineName=mine["PipelineArn"].rpartition("/")[2],
                CreatedBefore=mine["CreationTime"],
                SortBy="CreationTime",
                SortOrder="Descending",
                MaxResults=limit + 1,  # itself, where the service rounds the time
            )["PipelineExecutionSummaries"]
        others = [one["PipelineExecutionArn"] for one in listed]
        return [Execution(arn, self._region) for arn in others if arn != self.arn][:limit]

    def last_lines(self, step: Step, count: int) -> dict[str, list[str]]:
        """Host (``algo-1``) → the last ``count`` lines that it logged."""
        found = self.last_events(step, count)
        return {host: [event["message"] for event in events] for host, events in found.items()}

    def last_events(self, step: Step, count: int) -> dict[str, list[dict[str, Any]]]:
        """Host → the last ``count`` events of its log, each with ``timestamp`` and ``message``."""
        found = {}
        for stream in self._log_streams(step):
            host = stream.rpartition("/")[2]
            match = re.match(r"algo-\d+", host)
            answer = self._log_events(step, stream, limit=count, startFromHead=False)
            found[match[0] if match else host] = answer["events"]
        return found

    def all_lines(self, step: Step) -> Iterator[str]:
        """Every line that the step's first instance (rank 0's) logged, from the beginning."""
        for stream in self._log_streams(step)[:1]:
            token: str | None = None
            while True:
                more = {"nextToken": token} if token else {}
                page = self._log_events(step, stream, startFromHead=True, **more)
                yield from (event["message"] for event in page["events"])
                if page["nextForwardToken"] == token:  # the end: the service repeats the token
                    break
                token = page["nextForwardToken"]

    def _log_streams(self, step: Step) -> list[str]:
        """The log streams of the step's instances; none before the job has logged."""
        if step.job is None:
            return []
        kind, job = step.job
        with service_errors(f"looking for the logs of {job}"):
            try:
                found = self._logs.describe_log_streams(
                    logGroupName=LOG_GROUPS[kind], logStreamNamePrefix=f"{job}/"
                )
            except ClientError as error:
                if error_code(error) == "ResourceNotFoundException":
                    return []
                raise
        return [stream["logStreamName"] for stream in found["logStreams"]]

    def _log_events(self, step: Step, stream: str, **how: Any) -> dict[str, Any]:
        assert step.job is not None  # a stream was found of it
        kind, job = step.job
        with service_errors(f"reading the log of {job}"):
            return self._logs.get_log_events(
                logGroupName=LOG_GROUPS[kind], logStreamName=stream, **how
            )

    def output_json(self, step: Step, output: str, file: str) -> dict[str, Any] | None:
        """A JSON file from an output of a processing step; None when it is not there."""
        if step.job is None or step.job[0] != "ProcessingJob":
            return None
        with service_errors(f"reading {file} of step {step.name}"):
            job = self._sagemaker.describe_processing_job(ProcessingJobName=step.job[1])
            outputs = job["ProcessingOutputConfig"]["Outputs"]
            uris = {o["OutputName"]: o["S3Output"]["S3Uri"] for o in outputs}
            if output not in uris:
                return None
            where = urlsplit(f"{uris[output]}/{file}")
            try:
                got = self._s3.get_object(Bucket=where.netloc, Key=where.path.lstrip("/"))
            except ClientError as error:
                if error_code(error) == "NoSuchKey":
                    return None
                raise
            return json.loads(got["Body"].read())


def latest_execution(
    pipeline: str | None, region: str | None = None, start: str = "StartPipelineExecution"
) -> str:
    """ARN of the newest execution of ``pipeline``, or of any pipeline when that is None.

    ``start``: what the message recommends where there is none.

    Raises:
        ServiceError: nothing has been started yet, or AWS cannot be reached.
    """
    with service_errors("looking for the newest execution"):
        sagemaker = client("sagemaker", region)
        names = [pipeline] if pipeline else _pipelines(sagemaker)
        newest = [found for name in names for found in _executions(sagemaker, name)]
    if not newest:
        raise ServiceError(
            f"{pipeline or 'no pipeline'} has no execution to watch; start one with {start}"
        )
    return max(newest, key=lambda found: found["StartTime"])["PipelineExecutionArn"]


def all_executions(region: str | None = None) -> list[str]:
    """ARNs of every execution of every pipeline.

    Raises:
        ServiceError: AWS refused, or cannot be reached.
    """
    with service_errors("listing all executions"):
        sagemaker = client("sagemaker", region)
        pages = sagemaker.get_paginator("list_pipeline_executions")
        return [
            found["PipelineExecutionArn"]
            for name in _pipelines(sagemaker)
            for page in pages.paginate(PipelineName=name)
            for found in page["PipelineExecutionSummaries"]
        ]


def _pipelines(sagemaker: Any) -> list[str]:
    pages = sagemaker.get_paginator("list_pipelines").paginate()
    return [item["PipelineName"] for page in pages for item in page["PipelineSummaries"]]


def _executions(sagemaker: Any, pipeline: str) -> list[dict[str, Any]]:
    return sagemaker.list_pipeline_executions(
        PipelineName=pipeline, SortBy="CreationTime", SortOrder="Descending", MaxResults=1
    )["PipelineExecutionSummaries"]
