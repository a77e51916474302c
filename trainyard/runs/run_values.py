"""Values of an execution's expressions, as the service reports them after its steps have run."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from trainyard.aws_clients import service_errors
from trainyard.common.errors import ServiceError
from trainyard.language import steps as language
from trainyard.language.evaluation import Start, Unknown, arn_variables, read_json
from trainyard.language.expressions import ExpressionError, lookup
from trainyard.language.step_types import STEP_TYPES, StepType
from trainyard.runs.execution import Step


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource that a step created, or a job that it started."""

    kind: str
    """Key in the step's Metadata: ``TrainingJob``, ``Model``, ``RegisterModel``."""

    name: str
    arn: str
    operation: str
    """Operation that describes it: ``DescribeTrainingJob``."""


def resource_of(step: Step) -> Resource | None:
    """Return the step's resource, if it can be described; None otherwise.

    A check's resource is its job; the Metadata have what it compares.
    """
    if step.job:
        kind, name = step.job
        return Resource(kind, name, _arn(step.metadata), f"Describe{kind}")
    for step_type in STEP_TYPES.values():
        key, operation = step_type.metadata_key, _operation(step_type)
        arn = (step.metadata.get(key) or {}).get("Arn")
        if arn and operation:
            return Resource(key, arn.rpartition("/")[2], arn, operation)
    return None


def _arn(metadata: Mapping[str, Any]) -> str:
    bodies = (body for body in metadata.values() if isinstance(body, dict))
    return next((arn for body in bodies if (arn := body.get("Arn") or body.get("CheckJobArn"))), "")


def _operation(kind: StepType) -> str:
    """Return the operation whose answer has the step's properties; empty if SageMaker has none."""
    if kind.service != "sagemaker" or kind.describe is None:
        return ""
    return kind.describe.removesuffix("Response").removesuffix("Output")


def describe_resource(sagemaker: Any, resource: Resource) -> dict[str, Any]:
    """Return the Describe operation's answer, without the metadata of every answer; empty if
    describing it needs more than a name.

    Raises:
        ServiceError: it no longer exists, or AWS refused.
    """
    model = sagemaker.meta.service_model.operation_model(resource.operation)
    required_names = model.input_shape.required_members
    if len(required_names) != 1:
        return {}
    name = resource.arn if required_names[0] == "ModelPackageName" else resource.name
    with service_errors(f"describing {resource.kind} {resource.name}"):
        answer = _method(sagemaker, resource.operation)(**{required_names[0]: name})
    return {key: value for key, value in answer.items() if key != "ResponseMetadata"}


def _method(client: Any, operation: str) -> Any:
    methods = client.meta.method_to_api_mapping
    return getattr(client, next(name for name, api in methods.items() if api == operation))


class RunValues(Start):
    """The values of an execution, as far as the service reports them.

    Args:
        arn: the execution's.
        answer: DescribePipelineExecution's.
        steps: those that have begun.
        document: the execution's definition.
        parameters: name → value, in its type.
        describe: returns a resource's description; raises ServiceError.
        read: returns the content of the object at an S3 URI; raises ServiceError.
    """

    def __init__(
        self,
        *,
        arn: str,
        answer: Mapping[str, Any],
        steps: Iterable[Step],
        document: Mapping[str, Any],
        parameters: Mapping[str, Any],
        describe: Callable[[Resource], Mapping[str, Any]],
        read: Callable[[str], bytes],
    ) -> None:
        super().__init__(parameters)
        self._arn, self._document = arn, document
        self._describe, self._read = describe, read
        self._steps = {step.name: step for step in steps}
        self._began = answer.get("CreationTime")

    def variable(self, name: str) -> Any:
        variables = arn_variables(self._arn)
        if name == "StartDateTime" and isinstance(self._began, datetime):
            return self._began.isoformat()
        return variables[name] if name in variables else super().variable(name)

    def property(self, step: str, path: str) -> Any:
        if (run_step := self._steps.get(step)) is None:
            return Unknown(f"{step} has not begun")
        try:
            return lookup(self._properties(run_step), path, f"Steps.{step}.{path}")
        except ExpressionError:
            if run_step.status in ("Succeeded", "Executing"):
                raise
            return Unknown(f"{step} {run_step.status.lower()}, and has no {path}")

    def _properties(self, step: Step) -> Mapping[str, Any]:
        """Return the document in which the step's properties are looked up."""
        bodies = [body for body in step.metadata.values() if isinstance(body, dict)]
        properties = {key: value for body in bodies for key, value in body.items()}
        if outputs := properties.get("OutputParameters"):
            properties["OutputParameters"] = {
                output.get("Name"): output.get("Value") for output in outputs
            }
        resource = resource_of(step)
        try:
            return properties | (dict(self._describe(resource)) if resource else {})
        except ServiceError as error:
            raise ExpressionError(str(error)) from None

    def property_file_uri(self, step: str, name: str) -> str | Unknown:
        """Return the S3 URI of a step's property file."""
        step_definition = language.find_step(self._document.get("Steps"), step)
        if step_definition is None:
            raise ExpressionError(f"step {step!r} does not exist")
        folder, file = language.property_file(step_definition.document, name)
        uri = self.property(step, folder)
        return uri if isinstance(uri, Unknown) else f"{uri.rstrip('/')}/{file}"

    def property_file(self, step: str, name: str, path: str) -> Any:
        uri = self.property_file_uri(step, name)
        return uri if isinstance(uri, Unknown) else self.s3_file(uri, path)

    def s3_file(self, uri: str, path: str) -> Any:
        try:
            return read_json(self._read(uri), path, uri)
        except ServiceError as error:
            raise ExpressionError(str(error)) from None
