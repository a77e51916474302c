"""What a step made, by the answer of the service's own Describe operation."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainyard.console.account import Account
from trainyard.language.step_types import STEP_TYPES, StepType
from trainyard.runs.execution import Step
from trainyard.service import service_errors


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
