"""The base class of step runners, and the table of all runners."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from trainyard.emulator.internal_client import Aws
from trainyard.emulator.lambda_.lambda_functions import Functions
from trainyard.emulator.logs.log_store import LogStore
from trainyard.emulator.request_scope import ApiError
from trainyard.emulator.request_shapes import Check
from trainyard.emulator.s3.object_store import ObjectStore
from trainyard.emulator.sagemaker.callback_tokens import Callbacks
from trainyard.emulator.sagemaker.endpoints.endpoints import Endpoints
from trainyard.emulator.sagemaker.jobs.job_api import Jobs
from trainyard.emulator.sagemaker.search_api import Experiments
from trainyard.emulator.sagemaker.tuning.tuning_api import Tunings
from trainyard.language.evaluation import Scope
from trainyard.language.expressions import parse_parameter_value
from trainyard.language.step_types import STEP_TYPES


class StepFailed(Exception):
    """The step failed; the message is its FailureReason."""

    code = ""
    """The service's error code, if the service refused the request that creates the job."""


class StepTimedOut(StepFailed):
    """The step exceeded its time limit. Its execution then fails even if it is being stopped."""


class StepStopped(Exception):
    """The step was stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Parts of the emulator that runners use."""

    jobs: Jobs
    tunings: Tunings
    endpoints: Endpoints
    functions: Functions
    callbacks: Callbacks
    objects: ObjectStore
    logs: LogStore
    aws: Aws
    """Clients of this emulator, for services other than SageMaker."""
    experiments: Experiments
    forward: Callable[[str, dict], dict]
    """Function that performs a SageMaker operation. Raises :class:`ApiError`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """The inputs of one attempt to run a step, and functions that the runner calls."""

    arguments: dict[str, Any]
    """The step's Arguments, resolved unless the runner resolves them itself."""

    fields: dict[str, Any]
    """The members that the type has in addition to Arguments, resolved: FunctionArn, CheckType,
    …
    """

    name: str
    """A new, unique name for the resource that the step creates."""

    scope: Scope
    note: Callable[[dict[str, Any]], None]
    """Function that stores a resource in the step's Metadata. Call it as soon as the resource
    exists.
    """

    iterate: Callable[[list[Any]], dict[str, dict[str, Any]]]
    """Function that runs the steps of a loop's body for each item and returns each step's record by
    name.
    """


class Runner:
    """Base class of the runners of step types. ``metadata`` is what a step has stored in its
    Metadata, such as ``{"Arn": …}``.
    """

    resolves: ClassVar[bool] = False
    """Whether the runner resolves the step's Arguments itself."""

    def __init__(self, services: Services, step_type: str) -> None:
        self._services = services
        self._type = STEP_TYPES[step_type]

    @staticmethod
    def check(arguments: dict[str, Any]) -> None:
        """Raise :class:`ExpressionError` if CreatePipeline refuses the Arguments."""

    @staticmethod
    def iter_checks(step_type: str, arguments: dict[str, Any], python: Path) -> Iterable[Check]:
        """Return functions that raise if the step can never run here. Values of ``arguments`` that
        are not known yet are masked.
        """
        return ()

    def run(self, attempt: Attempt) -> None:
        """Do the step's work; return when it is complete.

        Raises:
            StepFailed: it failed.
            StepStopped: :meth:`stop` was called while it ran.
        """
        raise NotImplementedError

    def describe(self, metadata: dict[str, Any]) -> dict[str, Any]:
        """Return the step's properties."""
        return metadata

    def list_outputs(self, metadata: dict[str, Any]) -> list[str]:
        """Return the URIs that the step wrote to. A cache hit requires that the objects there are
        unchanged.
        """
        return []

    def stop(self, metadata: dict[str, Any]) -> None:
        """Stop the running work. Does nothing for steps that end at once."""


RUNNERS: dict[str, type[Runner]] = {}
"""Mapping of a step type to the class of its runner."""


def runs(*step_types: str) -> Callable[[type[Runner]], type[Runner]]:
    """Return a class decorator that registers a runner for step types.

    Raises:
        ValueError: the type does not exist, or has a runner already.
    """

    def register(runner: type[Runner]) -> type[Runner]:
        for name in step_types:
            if name not in STEP_TYPES or name in RUNNERS:
                reason = "has a runner" if name in RUNNERS else "is not in trainyard.language"
                raise ValueError(f"step type {name!r} of {runner.__module__} {reason}")
            RUNNERS[name] = runner
        return runner

    return register


def make_failure(operation: str, error: ApiError) -> StepFailed:
    """Return the failure, in AWS's words, of a step whose API call was refused."""
    kind = "InternalServerError" if error.status >= 500 else "ClientError"
    action = operation if ":" in operation else f"sagemaker:{operation}"
    failure = StepFailed(f"{kind}: Failed to invoke {action}. Error Details: {error.message}")
    failure.code = error.code
    return failure


# Output parameters of Lambda and Callback steps. The step declares them, its Metadata has their
# values as text, and expressions see them in the declared type.

LONGEST = 1024  # maximum characters of a value in a step's Metadata


def convert_outputs(
    declarations: Iterable[dict], outputs: Any, source: str
) -> list[dict[str, str]]:
    """Convert the declared members of ``outputs`` to the form that Metadata has: ``[{"Name": ...,
    "Value": text}]``.

    ``source`` names the origin of the outputs in messages.

    Raises:
        StepFailed: ``outputs`` is not an object, lacks a declared output, or has one of the
            wrong type.
    """
    if not isinstance(outputs, dict):
        if not declarations:
            return []
        raise StepFailed(
            f"ClientError: {source} returned {_shorten_json(outputs)}, expected a JSON object"
        )
    return [
        {"Name": declaration["OutputName"], "Value": _convert_output(declaration, outputs, source)}
        for declaration in declarations
    ]


def describe_outputs(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return ``metadata`` with OutputParameters as a mapping of names to texts, which
    :func:`parse_outputs` converts.
    """
    outputs = metadata.get("OutputParameters", [])
    return metadata | {"OutputParameters": {output["Name"]: output["Value"] for output in outputs}}


def parse_outputs(declarations: Iterable[dict], properties: dict[str, Any]) -> dict[str, Any]:
    """Return ``properties`` with each output parameter converted to the type that is declared."""
    types = {
        declaration["OutputName"]: declaration.get("OutputType", "String")
        for declaration in declarations
    }
    outputs = properties["OutputParameters"].items()
    read = {name: parse_parameter_value(text, types.get(name, "String")) for name, text in outputs}
    return properties | {"OutputParameters": read}


def _convert_output(declaration: dict, outputs: dict, source: str) -> str:
    """Return a declared output as text. Raises StepFailed if it is missing, too long or of another
    type.
    """
    name, kind = declaration["OutputName"], declaration.get("OutputType", "String")
    if name not in outputs:
        message = f"{source} returned no output {name!r}; it returned {sorted(outputs)}"
        raise StepFailed(f"ClientError: {message}")
    value = outputs[name]
    text = value if isinstance(value, str) else json.dumps(value)
    try:
        parse_parameter_value(text, kind)
    except ValueError:
        message = (
            f"{source} returned {_shorten_json(value)} as output {name!r}, "
            f"which is not of type {kind}"
        )
        raise StepFailed(f"ClientError: {message}") from None
    if len(text) > LONGEST:
        message = f"output {name!r} of {source} has {len(text)} characters; {LONGEST} are allowed"
        raise StepFailed(f"ClientError: {message}")
    return text


def _shorten_json(value: Any) -> str:
    return json.dumps(value)[:80]
