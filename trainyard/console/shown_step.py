"""The step that a page shows: its definition, resource, failure and exact arguments."""

import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

from botocore import xform_name
from botocore.exceptions import BotoCoreError, ClientError

from trainyard.common.errors import ServiceError
from trainyard.console.account_cache import A_DAY, Account, Snapshot
from trainyard.language import steps as language
from trainyard.language.evaluation import Start, Unknown, arn_variables, evaluate, read_json
from trainyard.language.expressions import ExpressionError, lookup
from trainyard.language.parameters import values
from trainyard.language.step_types import STEP_TYPES, StepType
from trainyard.language.steps import Step as Declared
from trainyard.language.steps import named
from trainyard.runs.evaluation_numbers import LARGEST, read_object
from trainyard.runs.execution import Execution, Step
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
    one = here.execution_of(arn)
    document = one.definition()
    return Defined(document, values(document, one.parameters()))


@dataclass(frozen=True, slots=True)
class Made:
    """A resource that a step created, or a job that it started."""

    kind: str
    """Key in the step's Metadata: ``TrainingJob``, ``Model``, ``RegisterModel``."""

    name: str
    arn: str
    operation: str
    """Operation that describes it: ``DescribeTrainingJob``."""


def made_by(step: Step) -> Made | None:
    """Return the step's resource, if it can be described; None otherwise.

    A check's resource is its job; the Metadata have what it compares.
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
    """Return the operation whose answer has the step's properties; empty if SageMaker has none."""
    if kind.service != "sagemaker" or kind.describe is None:
        return ""
    return kind.describe.removesuffix("Response").removesuffix("Output")


def describe(here: Account, made: Made, seconds: float | None = None) -> dict[str, Any]:
    """Return the Describe operation's answer, without the metadata of every answer; empty if
    describing it needs more than a name.

    Raises:
        ServiceError: it no longer exists, or AWS refused.
    """

    model = here.sagemaker.meta.service_model.operation_model(made.operation)
    required = model.input_shape.required_members
    if len(required) != 1:
        return {}
    named = made.arn if required[0] == "ModelPackageName" else made.name
    return here.ask(xform_name(made.operation), seconds, **{required[0]: named})


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
        return self.snapshot.title(self.address["pipeline"], self.address["execution"])

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
    def made(self) -> Made | None:
        """Its job, or another resource that it created."""
        return made_by(self.step) if self.step else None

    @cached_property
    def description(self) -> dict[str, Any]:
        """The service's description of that resource; empty if there is none."""
        return describe(self.here, self.made, self._seconds) if self.made else {}

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

    @property
    def _seconds(self) -> float | None:
        return SETTLED if self.step and self.step.ended else None


HIDDEN = "(hidden)"

TABLES = ("HyperParameters", "StaticHyperParameters", "Environment")
"""Members, at any depth, that are tables of names and values."""


class RunValues(Start):
    """The values of an execution, as far as the service reports them."""

    def __init__(self, here: Account, snapshot: Snapshot, defined: Defined, arn: str) -> None:
        super().__init__(defined.parameters)
        self._here, self._defined, self._arn = here, defined, arn
        self._steps = {step.name: step for step in snapshot.steps}
        self._began = snapshot.described.get("CreationTime")

    def variable(self, name: str) -> Any:
        known = arn_variables(self._arn)
        if name == "StartDateTime" and isinstance(self._began, datetime):
            return self._began.isoformat()
        return known[name] if name in known else super().variable(name)

    def property(self, step: str, path: str) -> Any:
        if (found := self._steps.get(step)) is None:
            return Unknown(f"{step} has not begun")
        try:
            return lookup(self._described(found), path, f"Steps.{step}.{path}")
        except ExpressionError:
            if found.status in ("Succeeded", "Executing"):
                raise
            return Unknown(f"{step} {found.status.lower()}, and has no {path}")

    def _described(self, step: Step) -> Mapping[str, Any]:
        """Return the document in which the step's properties are looked up."""
        of_all = [body for body in step.metadata.values() if isinstance(body, dict)]
        found = {key: value for body in of_all for key, value in body.items()}
        if outputs := found.get("OutputParameters"):
            found["OutputParameters"] = {one.get("Name"): one.get("Value") for one in outputs}
        made = made_by(step)
        try:
            return found | (describe(self._here, made) if made else {})
        except ServiceError as error:
            raise ExpressionError(str(error)) from None

    def property_file(self, step: str, name: str, path: str) -> Any:
        declared = self._defined.step(step)
        if declared is None:
            raise ExpressionError(f"step {step!r} does not exist")
        folder, file = language.property_file(declared.document, name)
        uri = self.property(step, folder)
        return uri if isinstance(uri, Unknown) else self.s3_file(f"{uri}/{file}", path)

    def s3_file(self, uri: str, path: str) -> Any:
        try:
            found = self._here.lately(("step: file", uri), lambda: read_object(self._here.s3, uri))
        except (ClientError, BotoCoreError) as error:
            raise ExpressionError(f"{uri}: {error}") from None
        if len(found[1]) > LARGEST:
            raise ExpressionError(f"{uri} is too large to be read here")
        return read_json(found[1], path, uri)


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
