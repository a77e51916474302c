"""A run of the cases against an endpoint: calls, answers, and the resources to remove."""

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from botocore.exceptions import ClientError, ParamValidationError

from trainyard.language.statuses import ENDED

_STEP = ("StepName", "StepStatus", "FailureReason", "AttemptCount", "Metadata")


@dataclass
class Run:
    """``clients``: boto3's for ``sagemaker``, ``s3``; ``prefix``: before the name of each
    created resource.
    """

    sagemaker: Any
    s3: Any
    prefix: str
    bucket: str
    role: str
    image: str
    account: str
    region: str
    poll: float = 5.0
    patience: float = 3600.0
    recorded: list[dict[str, Any]] = field(default_factory=list)
    _cleanup: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        own = {self.role: "<role>", self.image: "<image>", self.bucket: "<bucket>"}
        own |= {self.prefix: "<prefix>-", self.account: "<account>", self.region: "<region>"}
        self._scrub = Scrubber(own)

    def name(self, name: str) -> str:
        return f"{self.prefix}{name}"

    def arn(self, resource: str) -> str:
        return f"arn:aws:sagemaker:{self.region}:{self.account}:{resource}"

    def call(self, operation: str, **request: Any) -> dict[str, Any] | None:
        """Call an operation and return the answer; None when it was refused. Either is recorded."""
        entry: dict[str, Any] = {"call": operation}
        self.recorded.append(entry)
        try:
            answer: dict[str, Any] = getattr(self.sagemaker, operation)(**request)
        except ClientError as refused:
            error = refused.response["Error"]
            entry["error"] = self._scrub({"Code": error["Code"], "Message": error["Message"]})
            entry["status"] = refused.response["ResponseMetadata"]["HTTPStatusCode"]
            return None
        except ParamValidationError as wrong:  # the client itself refused the request's shape
            entry["error"] = {"Code": "ParamValidationError", "Message": self._scrub(str(wrong))}
            return None
        entry["answer"] = self._scrub(answer)
        return answer

    def later(self, operation: str, **request: Any) -> None:
        """Call an operation when all is done; the last one first."""
        self._cleanup.append((operation, request))

    def create(self, name: str, text: str, token: str = "c" * 32) -> None:
        """Call CreatePipeline; the pipeline is removed at the end."""
        made = self.call(
            "create_pipeline", PipelineName=self.name(name), PipelineDefinition=text,
            RoleArn=self.role, ClientRequestToken=token,
        )  # fmt: skip
        if made:
            named = {"PipelineName": self.name(name), "ClientRequestToken": "d" * 32}
            self.later("delete_pipeline", **named)

    def executed(self, name: str, parameters: list[dict] | None = None) -> str | None:
        """Return the ARN of an execution that has ended; its description and steps are recorded."""
        started = self.call(
            "start_pipeline_execution", PipelineName=self.name(name),
            PipelineParameters=parameters or [],
        )  # fmt: skip
        if not started:
            return None
        arn: str = started["PipelineExecutionArn"]
        self.ended(arn)
        return arn

    def ended(self, arn: str) -> None:
        """Wait for the execution's end, and record how it ended.

        Raises:
            TimeoutError: it still runs after ``patience`` seconds.
        """
        end = time.monotonic() + self.patience
        while True:
            found = self.sagemaker.describe_pipeline_execution(PipelineExecutionArn=arn)
            if found["PipelineExecutionStatus"] in ENDED:
                break
            if time.monotonic() > end:
                raise TimeoutError(f"{arn} still runs after {self.patience:g} s")
            time.sleep(self.poll)
        self.recorded.append({"ended": self._scrub(found)})
        answer = self.sagemaker.list_pipeline_execution_steps(
            PipelineExecutionArn=arn, SortOrder="Ascending"
        )
        found = answer["PipelineExecutionSteps"]
        steps = [{key: step[key] for key in _STEP if key in step} for step in found]
        self.recorded.append({"steps": self._scrub(steps)})

    def clean(self) -> Iterator[str]:
        """Remove what was created; yield a line for each thing that could not be removed."""
        for operation, request in reversed(self._cleanup):
            try:
                getattr(self.sagemaker, operation)(**request)
            except ClientError as refused:
                yield f"{operation} {request}: {refused}"
        self._cleanup.clear()
        found = self.s3.list_objects_v2(Bucket=self.bucket).get("Contents", [])
        for item in found:
            self.s3.delete_object(Bucket=self.bucket, Key=item["Key"])
        self.s3.delete_bucket(Bucket=self.bucket)


_RULES = (
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "<uuid>"),
    (re.compile(r"\b(pipelines-)[a-z0-9]{12}(-[\w-]+?-)[A-Za-z0-9]{10}\b"), r"\1<execution>\2<id>"),
    (re.compile(r"(/execution/)[a-z0-9]{12}\b"), r"\1<execution>"),
    (re.compile(r"\bexecution-\d{13}\b"), "execution-<time>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.\d]*(Z|[+-]\d\d:?\d\d)?"), "<time>"),
)
_DROPPED = {"ResponseMetadata", "CreatedBy", "LastModifiedBy"}


class Scrubber:
    """Replaces the run's own names: account, region, role, bucket, prefix."""

    def __init__(self, own: dict[str, str]) -> None:
        """``own``: text in answers → its replacement, e.g. the account's number."""
        self._own = sorted(own.items(), key=lambda item: -len(item[0]))

    def __call__(self, value: Any) -> Any:
        """Return the value without them; a time becomes ``<time>``, a dictionary is sorted."""
        if isinstance(value, dict):
            kept = {key: self(found) for key, found in value.items() if key not in _DROPPED}
            return dict(sorted(kept.items()))
        if isinstance(value, list):
            return [self(found) for found in value]
        if isinstance(value, datetime):
            return "<time>"
        return self._text(value) if isinstance(value, str) else value

    def _text(self, text: str) -> str:
        for found, written in self._own:
            text = text.replace(found, written)
        for pattern, written in _RULES:
            text = pattern.sub(written, text)
        return text


def differences(one: dict[str, Any], other: dict[str, Any]) -> Iterator[str]:
    """Iterate over ``case: place: this, there that``; texts and lists are compared as they are."""
    for name in sorted({*one["cases"], *other["cases"]}):
        yield from _compared(name, one["cases"].get(name), other["cases"].get(name))


def _compared(place: str, one: Any, other: Any) -> Iterator[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted({*one, *other}):
            yield from _compared(f"{place}.{key}", one.get(key), other.get(key))
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from _compared(f"{place}[{index}]", left, right)
    elif one != other:
        yield f"{place}: {one!r}, there {other!r}"
