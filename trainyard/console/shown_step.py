"""The step that a page shows: its definition, resource, failure and exact arguments."""

import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from trainyard.aws_clients import service_errors
from trainyard.common.errors import ServiceError
from trainyard.console.account_cache import A_DAY, Account, Snapshot
from trainyard.console.execution_index import run_title
from trainyard.language import steps as language
from trainyard.language.evaluation import Unknown, evaluate
from trainyard.language.parameters import values
from trainyard.language.steps import Step as Declared
from trainyard.language.steps import named
from trainyard.runs.evaluation_numbers import LARGEST, read_object
from trainyard.runs.execution import Execution, Step
from trainyard.runs.run_values import Resource, RunValues, describe_resource, resource_of
from trainyard.runs.why.diagnosis import Cause
from trainyard.runs.why.read_evidence import cause_of
from trainyard.secrets import find, hidden

UNCHANGING = 3_600.0
"""Seconds for which unchanging data are kept."""


@dataclass(frozen=True, slots=True)
class Defined:
    """The definition and parameters of an execution."""

    document: Mapping[str, Any]
    parameters: Mapping[str, Any]
    """Name → value, in its type."""

    def step(self, name: str) -> Declared | None:
        """Return the step of that name, or the step in a loop's body of which ``<body>-<index>`` is
        a run.
        """
        return named(self.document.get("Steps"), name)


def defined(here: Account, arn: str) -> Defined:
    """Return the definition and the parameters of the execution with that ARN.

    Raises:
        ServiceError: the execution does not exist, or AWS refused.
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


def describe(here: Account, resource: Resource, seconds: float | None = None) -> dict[str, Any]:
    """Return what :func:`describe_resource` does, kept for some seconds.

    Raises:
        ServiceError: it no longer exists, or AWS refused.
    """
    key = ("step: resource", resource.operation, resource.arn or resource.name)
    return here.lately(key, lambda: describe_resource(here.sagemaker, resource), seconds)


SETTLED = 60.0
"""Seconds for which data of an ended step are reused: it may be retried."""

LATE = timedelta(minutes=5)
"""Time after which a log is complete, and results from it are final."""


class Shown:
    """A step of one execution, as it is now.

    Raises:
        ServiceError: the execution does not exist, or AWS refused.
    """

    def __init__(self, here: Account, pipeline: str, execution: str, name: str) -> None:
        self.here, self.name = here, name
        self.execution: Execution = here.execution(pipeline, execution)
        self.snapshot: Snapshot = here.snapshot(pipeline, execution)
        self.address = {"pipeline": pipeline, "execution": execution, "step": name}

    @property
    def arn(self) -> str:
        """ARN of the execution."""
        return self.execution.arn

    @property
    def title(self) -> str:
        """Name that people gave the run, or pipeline and time."""
        known = self.snapshot.described
        name = known.get("PipelineExecutionDisplayName", "")
        pipeline, execution = self.address["pipeline"], self.address["execution"]
        return run_title(pipeline, name, known.get("CreationTime"), execution)

    @cached_property
    def step(self) -> Step | None:
        """The step; None before it has begun."""
        return next((one for one in self.snapshot.steps if one.name == self.name), None)

    @cached_property
    def defined(self) -> Defined:
        """The definition of the execution."""
        return defined(self.here, self.arn)

    @cached_property
    def declared(self) -> Declared | None:
        """The step in the definition; None if that cannot be read, or lacks the step."""
        try:
            return self.defined.step(self.name)
        except ServiceError:
            return None

    @cached_property
    def resource(self) -> Resource | None:
        """Its job, or another resource that it created."""
        return resource_of(self.step) if self.step else None

    @cached_property
    def description(self) -> dict[str, Any]:
        """The service's description of that resource; empty if there is none."""
        return describe(self.here, self.resource, self._seconds) if self.resource else {}

    @property
    def type(self) -> str:
        """Type, such as ``Training``; if the definition cannot be read, from the Metadata."""
        if self.declared:
            return self.declared.type
        return next(iter(self.step.metadata), "") if self.step else ""

    def cause(self) -> Cause | None:
        """Return why it failed; None if it has not failed."""
        one = self.step
        if one is None or one.status != "Failed":
            return None
        key = ("cause", self.arn, one.name, one.ended)
        is_late = one.ended is not None and datetime.now(UTC) - one.ended > LATE
        good = A_DAY if is_late else SETTLED
        return self.here.lately(key, lambda: cause_of(self.execution, one), good)

    def version(self) -> str:
        """Return a value that changes when something about the step changes."""
        running = self.step is not None and self.step.ended is None
        try:
            job = self.description if running else {}
        except ServiceError:  # its part of the page reports it
            job = {}
        return repr((self.snapshot.status, self.step, job))

    @property
    def _seconds(self) -> float | None:
        return SETTLED if self.step and self.step.ended else None


HIDDEN = "(hidden)"

TABLES = ("HyperParameters", "StaticHyperParameters", "Environment")
"""Members, at any depth, that are tables of names and values."""


def run_values(shown: Shown) -> RunValues:
    """Return the values of the step's execution."""
    here = shown.here

    def read(uri: str) -> bytes:
        try:
            found = here.lately(("step: file", uri), lambda: read_object(here.s3, uri))
        except (ClientError, BotoCoreError) as error:
            raise ServiceError(f"{uri}: {error}") from None
        if len(found[1]) > LARGEST:
            raise ServiceError(f"{uri} is too large to be read here")
        return found[1]

    return RunValues(
        arn=shown.arn,
        answer=shown.snapshot.described,
        steps=shown.snapshot.steps,
        document=shown.defined.document,
        parameters=shown.defined.parameters,
        describe=lambda resource: describe(here, resource),
        read=read,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of hyperparameters, or of environment variables."""

    name: str
    """Path of the table: ``HyperParameters``, ``PrimaryContainer.Environment``."""

    rows: tuple[tuple[str, str], ...]


def resolved(step: language.Step, values: RunValues) -> dict[str, Any]:
    """Return the step's whole entry in the definition, expressions replaced, without nested steps.

    Values not known yet are shown as ``(not known: why)``; secrets as ``(hidden)``.
    """
    entry = {**step.document, "Arguments": step.own_arguments}
    return dict(public(evaluate(entry, values, lenient=True)))


def public(value: Any) -> Any:
    """Return a copy that may be shown: secrets hidden, unknown values as text that says so."""
    shown = _without_unknowns(copy.deepcopy(value))
    for path in list(find(shown)):
        holder = shown
        for key in path[:-1]:
            holder = holder[key]
        holder[path[-1]] = HIDDEN
    return shown


def _without_unknowns(value: Any) -> Any:
    if isinstance(value, Unknown):
        return f"(not known: {value})"
    if isinstance(value, dict):
        return {key: _without_unknowns(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_unknowns(item) for item in value]
    return value


def tables(arguments: Any, at: str = "") -> Iterator[Table]:
    """Iterate over all tables of names and values in arguments that may be shown."""
    if isinstance(arguments, list):
        for number, item in enumerate(arguments):
            yield from tables(item, f"{at}[{number}]")
    if not isinstance(arguments, dict):
        return
    for key, value in arguments.items():
        where = f"{at}.{key}".lstrip(".")
        if key in TABLES and isinstance(value, dict) and value:
            rows = tuple((name, _cell(name, item)) for name, item in sorted(value.items()))
            yield Table(name=where, rows=rows)
        else:
            yield from tables(value, where)


def _cell(name: str, value: Any) -> str:
    if hidden(name, value):
        return HIDDEN
    return value if isinstance(value, str) else json.dumps(value, default=str)
