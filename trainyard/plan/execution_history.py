"""Earlier executions of a pipeline, newest first, read no further back than a plan needs."""

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import ClientError

from trainyard.aws_clients import error_code
from trainyard.language.parameters import values
from trainyard.plan.step_fields import steps

LIMIT = 20
"""Largest number of executions that a plan reads; each costs three calls."""

BATCHES = (1, 4, LIMIT - 5)  # most plans find all they need in the newest execution


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRun:
    """A step that succeeded in an execution."""

    start_time: datetime
    end_time: datetime
    source: str | None
    """ARN of the execution whose result it reused; None when it ran."""

    job: str
    """Name of its job; empty for a step without one."""

    @property
    def seconds(self) -> float:
        """Seconds from its start to its end, waiting for machines included."""
        return (self.end_time - self.start_time).total_seconds()


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """An execution of the pipeline."""

    arn: str
    start_time: datetime
    document: Mapping[str, Any]
    """Definition that it ran."""

    parameters: Mapping[str, Any]
    """Values of its parameters, in their types."""

    steps: Mapping[str, StepRun]
    """Steps that succeeded."""

    @property
    def id(self) -> str:
        return self.arn.rpartition("/")[2]


class History:
    """The executions of one pipeline; ``pipeline`` None: it does not exist, and has none.

    ``before``: only executions that began earlier; None: all. ``s3``: client to check whether
    results still exist; None: not checked.
    """

    def __init__(
        self,
        sagemaker: Any,
        pipeline: str | None,
        before: datetime | None = None,
        s3: Any = None,
    ) -> None:
        self._sagemaker, self.s3 = sagemaker, s3
        self._before = before
        self._by_arn: dict[str, Run] = {}
        self._batches = self._read(pipeline) if pipeline else iter(())
        self.runs: list[Run] = []
        """Executions read so far, newest first."""

    def more(self) -> bool:
        """Read some more; return False if there are none, or :data:`LIMIT` is reached."""
        batch = next(self._batches, None)
        self.runs.extend(batch or ())
        return batch is not None

    def run(self, arn: str) -> Run | None:
        """Return the execution with that ARN; None if it no longer exists."""
        if arn not in self._by_arn:
            try:
                description = self._sagemaker.describe_pipeline_execution(PipelineExecutionArn=arn)
            except ClientError as error:
                if error_code(error) == "ResourceNotFound":
                    return None
                raise
            self._load(arn, description.get("CreationTime", datetime.now(UTC)))
        return self._by_arn[arn]

    def _read(self, pipeline: str) -> Iterator[list[Run]]:
        earlier = {"CreatedBefore": self._before} if self._before else {}
        answer = self._sagemaker.list_pipeline_executions(
            PipelineName=pipeline,
            SortBy="CreationTime",
            SortOrder="Descending",
            MaxResults=LIMIT,
            **earlier,
        )
        executions = [
            (summary["PipelineExecutionArn"], summary["StartTime"])
            for summary in answer.get("PipelineExecutionSummaries", [])
            if "PipelineExecutionArn" in summary and "StartTime" in summary
        ]
        if self._before:  # the service rounds the times, and may list the execution that began then
            executions = [
                (arn, start_time) for arn, start_time in executions if start_time < self._before
            ]
        start = 0
        for size in BATCHES:
            batch = executions[start : start + size]
            if not batch:
                return
            with ThreadPoolExecutor(8) as threads:
                yield list(threads.map(lambda pair: self._load(*pair), batch))
            start += size

    def _load(self, arn: str, start_time: datetime) -> Run:
        if arn not in self._by_arn:
            document = self._document(arn)
            self._by_arn[arn] = Run(
                arn=arn,
                start_time=start_time,
                document=document,
                parameters=self._parameters(arn, document),
                steps=self._steps(arn),
            )
        return self._by_arn[arn]

    def _document(self, arn: str) -> dict[str, Any]:
        answer = self._sagemaker.describe_pipeline_definition_for_execution(
            PipelineExecutionArn=arn
        )
        return json.loads(answer.get("PipelineDefinition") or '{"Steps": []}')

    def _parameters(self, arn: str, document: Mapping[str, Any]) -> dict[str, Any]:
        pages = self._sagemaker.get_paginator("list_pipeline_parameters_for_execution")
        parameters = {
            parameter["Name"]: parameter["Value"]
            for page in pages.paginate(PipelineExecutionArn=arn)
            for parameter in page.get("PipelineParameters", [])
            if "Name" in parameter and "Value" in parameter
        }
        return values(document, parameters)

    def _steps(self, arn: str) -> dict[str, StepRun]:
        pages = self._sagemaker.get_paginator("list_pipeline_execution_steps")
        steps = (
            step
            for page in pages.paginate(PipelineExecutionArn=arn)
            for step in page.get("PipelineExecutionSteps", [])
        )
        return {entry["StepName"]: _step(entry) for entry in steps if _is_complete(entry)}


def _is_complete(answer: Mapping[str, Any]) -> bool:
    """Return whether a step has succeeded, and its times are given; all members are optional."""
    complete = all(name in answer for name in ("StepName", "StartTime", "EndTime"))
    return complete and answer.get("StepStatus") == "Succeeded"


def _step(answer: Mapping[str, Any]) -> StepRun:
    source_result = answer.get("CacheHitResult") or answer.get("SelectiveExecutionResult") or {}
    jobs = (
        body.get("Arn", "") for kind, body in answer.get("Metadata", {}).items() if "Job" in kind
    )
    return StepRun(
        start_time=answer["StartTime"],
        end_time=answer["EndTime"],
        source=source_result.get("SourcePipelineExecutionArn") or None,
        job=next(jobs, "").rpartition("/")[2],
    )


def step_of(run: Run, name: str) -> Mapping[str, Any] | None:
    """Return the step in the definition that the execution ran."""
    return steps(run.document).get(name)
