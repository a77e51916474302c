"""What a runner of a step type is, and the table of them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from trainyard.emulator.api import ApiError
from trainyard.emulator.callback_tokens import Callbacks
from trainyard.emulator.experiments import Experiments
from trainyard.emulator.internal_client import Aws
from trainyard.emulator.jobs.job_api import Jobs
from trainyard.emulator.jobs.request_checks import Check
from trainyard.emulator.services.functions.lambda_functions import Functions
from trainyard.emulator.services.log_store import LogStore
from trainyard.emulator.serving.endpoints import Endpoints
from trainyard.emulator.storage.object_store import ObjectStore
from trainyard.emulator.tuning.tuning_api import Tunings
from trainyard.language.evaluation import Scope
from trainyard.language.step_types import STEP_TYPES


class StepFailed(Exception):
    """The step failed; the message is its FailureReason."""


class StepTimedOut(StepFailed):
    """The step took longer than it may: its execution fails even when it is being stopped."""


class StepStopped(Exception):
    """The step was stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What of the emulator runners use."""

    jobs: Jobs
    tunings: Tunings
    endpoints: Endpoints
    functions: Functions
    callbacks: Callbacks
    objects: ObjectStore
    logs: LogStore
    aws: Aws
    """This emulator as its own client, for the services that are not SageMaker's."""
    experiments: Experiments
    forward: Callable[[str, dict], dict]
    """Answers an operation of SageMaker's that runs nothing. Raises :class:`ApiError`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt of one step."""

    arguments: dict[str, Any]
    """Resolved, unless the runner resolves them itself."""

    fields: dict[str, Any]
    """The fields of its type beside Arguments, resolved: FunctionArn, CheckType, …"""

    name: str
    """A new name, for what the step makes."""

    scope: Scope
    note: Callable[[dict[str, Any]], None]
    """Takes what the step's Metadata are to say of what it made, as soon as that is known."""

    iterate: Callable[[list[Any]], dict[str, dict[str, Any]]]
    """Runs the steps of the body of a loop for each item: the name of each → its record."""


class Runner:
    """Does the steps of a type. ``made`` is what was noted of a step: ``{"Arn": …}``."""

    resolves: ClassVar[bool] = False
    """Whether it resolves the step's Arguments itself."""

    def __init__(self, services: Services, step_type: str) -> None:
        self._services = services
        self._type = STEP_TYPES[step_type]

    @staticmethod
    def check(arguments: dict[str, Any]) -> None:
        """Raises :class:`ExpressionError` for Arguments that CreatePipeline refuses."""

    @staticmethod
    def checks(step_type: str, arguments: dict[str, Any], python: Path) -> Iterable[Check]:
        """What it could never run, where that can be told from Arguments with unknown values."""
        return ()

    def run(self, attempt: Attempt) -> None:
        """Do the step's work, to its end.

        Raises:
            StepFailed: it failed.
            StepStopped: :meth:`stop` was called meanwhile.
        """
        raise NotImplementedError

    def describe(self, made: dict[str, Any]) -> dict[str, Any]:
        """The step's properties."""
        return made

    def outputs(self, made: dict[str, Any]) -> list[str]:
        """URIs that it wrote to: a cache hit needs them to be there, unchanged."""
        return []

    def stop(self, made: dict[str, Any]) -> None:
        """Stop the work that is under way; nothing where it takes no time."""


RUNNERS: dict[str, type[Runner]] = {}
"""Step type → what runs it."""


def runs(*step_types: str) -> Callable[[type[Runner]], type[Runner]]:
    """Register a runner for step types.

    Raises:
        ValueError: there is no such type, or it has a runner already.
    """

    def register(runner: type[Runner]) -> type[Runner]:
        for name in step_types:
            if name not in STEP_TYPES or name in RUNNERS:
                why = "has a runner" if name in RUNNERS else "is not in trainyard.language"
                raise ValueError(f"step type {name!r} of {runner.__module__} {why}")
            RUNNERS[name] = runner
        return runner

    return register


def refused(operation: str, error: ApiError) -> StepFailed:
    """AWS's words for an API call that a step could not make."""
    kind = "InternalServerError" if error.status >= 500 else "ClientError"
    details = f"Failed to invoke sagemaker:{operation}. Error Details: {error.message}"
    return StepFailed(f"{kind}: {details}")
