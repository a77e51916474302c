"""The step that a page shows: what was asked of it, what it made, why it failed."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

from trainyard.aws_clients import service_errors
from trainyard.common.errors import ServiceError
from trainyard.console.account_cache import A_DAY, Account, Snapshot
from trainyard.language.parameters import values
from trainyard.language.step_types import STEP_TYPES, StepType
from trainyard.language.steps import Step as Declared
from trainyard.language.steps import named
from trainyard.runs.execution import Execution, Step
from trainyard.runs.why.diagnosis import Cause
from trainyard.runs.why.read_evidence import cause_of

UNCHANGING = 3_600.0
"""Seconds for which what cannot change is kept."""


@dataclass(frozen=True, slots=True)
class Defined:
    """What was asked of an execution."""

    document: Mapping[str, Any]
    parameters: Mapping[str, Any]
    """Name → value, in its type."""

    def step(self, name: str) -> Declared | None:
        """The step of that name, or the one in a loop's body that ``<body>-<index>`` is of."""
        return named(self.document.get("Steps"), name)


def defined(here: Account, arn: str) -> Defined:
    """The definition and the parameters of the execution with that ARN.

    Raises:
        ServiceError: there is none, or AWS refused.
    """
    return here.lately(("step: defined", arn), lambda: _read(here, arn), UNCHANGING)


def _read(here: Account, arn: str) -> Defined:
    with service_errors(f"reading the definition of {arn}"):
        answer = here.sagemaker.describe_pipeline_definition_for_execution(PipelineExecutionArn=arn)
        pages = here.sagemaker.get_paginator("list_pipeline_parameters_for_execution")
        given = {
            each.get("Name", ""): each.get("Value", "")
            for page in pages.paginate(PipelineExecutionArn=arn)
            for each in page.get("PipelineParameters", [])
        }
    document = json.loads(answer.get("PipelineDefinition") or "{}")
    return Defined(document, values(document, given))


@dataclass(frozen=True, slots=True)
class Made:
    """A resource that a step made, or a job that it started."""

    kind: str
    """``TrainingJob``, ``Model``, ``RegisterModel``: the member of the step's Metadata."""

    name: str
    arn: str
    operation: str
    """``DescribeTrainingJob``."""


def made_by(step: Step) -> Made | None:
    """What the step made, as far as it can be described; None where there is nothing of the kind.

    A check is known by its job: what it compares stands in its Metadata.
    """
    if step.job:
        kind, name = step.job
        return Made(kind, name, _arn(step.metadata), f"Describe{kind}")
    for step_type in STEP_TYPES.values():
        key, operation = step_type.metadata_key, _operation(step_type)
        arn = (step.metadata.get(key) or {}).get("Arn")
        if arn and operation:
            return Made(key, arn.rpartition("/")[2], arn, operation)
    return None


def _arn(metadata: Mapping[str, Any]) -> str:
    of_all = (body for body in metadata.values() if isinstance(body, dict))
    return next((arn for body in of_all if (arn := body.get("Arn") or body.get("CheckJobArn"))), "")


def _operation(kind: StepType) -> str:
    """The operation whose answer has the step's properties; empty where none of SageMaker's has."""
    if kind.service != "sagemaker" or kind.describe is None:
        return ""
    return kind.describe.removesuffix("Response").removesuffix("Output")


def describe(here: Account, made: Made, seconds: float | None = None) -> dict[str, Any]:
    """The Describe operation's answer, without what every answer has; empty for what takes more
    than a name to be described.

    Raises:
        ServiceError: it is gone, or AWS refused.
    """

    def read() -> dict[str, Any]:
        model = here.sagemaker.meta.service_model.operation_model(made.operation)
        required = model.input_shape.required_members
        if len(required) != 1:
            return {}
        named = made.arn if required[0] == "ModelPackageName" else made.name
        with service_errors(f"describing {made.kind} {made.name}"):
            answer = _method(here.sagemaker, made.operation)(**{required[0]: named})
        return {key: value for key, value in answer.items() if key != "ResponseMetadata"}

    return here.lately(("step: made", made.operation, made.arn or made.name), read, seconds)


def _method(client: Any, operation: str) -> Any:
    names = client.meta.method_to_api_mapping
    return getattr(client, next(name for name, its in names.items() if its == operation))


SETTLED = 60.0
"""Seconds for which what is read of a step that has ended is good: it may be retried."""

LATE = timedelta(minutes=5)
"""After so long a log has all of its lines, and what is found in it stays."""


class Shown:
    """One step of one execution, as it is at this moment.

    Raises:
        ServiceError: there is no such execution, or AWS refused.
    """

    def __init__(self, here: Account, pipeline: str, execution: str, name: str) -> None:
        self.here, self.name = here, name
        self.execution: Execution = here.execution(pipeline, execution)
        self.snapshot: Snapshot = here.snapshot(pipeline, execution)
        self.address = {"pipeline": pipeline, "execution": execution, "step": name}

    @property
    def arn(self) -> str:
        """Of the execution."""
        return self.execution.arn

    @cached_property
    def step(self) -> Step | None:
        """None before it has begun."""
        return next((one for one in self.snapshot.steps if one.name == self.name), None)

    @cached_property
    def defined(self) -> Defined:
        """The definition of the execution."""
        return defined(self.here, self.arn)

    @cached_property
    def declared(self) -> Declared | None:
        """The step in the definition; None where that cannot be read, or has none."""
        try:
            return self.defined.step(self.name)
        except ServiceError:
            return None

    @cached_property
    def made(self) -> Made | None:
        """Its job, or what else it made."""
        return made_by(self.step) if self.step else None

    @cached_property
    def description(self) -> dict[str, Any]:
        """What the service describes of that; empty where there is nothing of the kind."""
        return describe(self.here, self.made, self._seconds) if self.made else {}

    @property
    def type(self) -> str:
        """``Training``; of a step whose definition cannot be read, what its Metadata says."""
        if self.declared:
            return self.declared.type
        return next(iter(self.step.metadata), "") if self.step else ""

    def cause(self) -> Cause | None:
        """Why it failed; None where it has not."""
        one = self.step
        if one is None or one.status != "Failed":
            return None
        key = ("cause", self.arn, one.name, one.ended)
        is_late = one.ended is not None and datetime.now(UTC) - one.ended > LATE
        good = A_DAY if is_late else SETTLED
        return self.here.lately(key, lambda: cause_of(self.execution, one), good)

    def version(self) -> str:
        """Differs from that of another moment when something has changed."""
        running = self.step is not None and self.step.ended is None
        try:
            job = self.description if running else {}
        except ServiceError:  # its part of the page says so
            job = {}
        return repr((self.snapshot.status, self.step, job))

    @property
    def _seconds(self) -> float | None:
        return SETTLED if self.step and self.step.ended else None
