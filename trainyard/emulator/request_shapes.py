"""SageMaker's request shapes, as botocore ships them."""

import functools
import re
from typing import Any

from botocore.loaders import Loader
from botocore.model import ServiceModel, Shape
from botocore.validate import ParamValidator

from trainyard.emulator.api import ApiError


@functools.cache
def model() -> ServiceModel:
    """Botocore's model of SageMaker."""
    return ServiceModel(Loader().load_service_model("sagemaker", "service-2"), "sagemaker")


def check(operation: str, request: dict) -> None:
    """Refuses a request that SageMaker cannot read: missing, unknown or mistyped members.

    boto3 checks its own calls; a pipeline step's resolved Arguments pass only here. A number in
    a string field, as an Integer parameter in HyperParameters gives, is refused as on AWS
    (aws/sagemaker-python-sdk#2631). Raises ``ValidationException``.
    """
    shape = model().operation_model(operation).input_shape
    if why := report(shape, request):
        raise ApiError("ValidationException", f"{operation}: {why}")
    if shape is not None and not operation.startswith("Create"):  # whose own checks say more
        _check_limits(shape, request)


def _check_limits(shape: Shape, request: dict) -> None:
    """Refuses a name, a choice or a number that cannot be one, in SageMaker's words."""
    for name, value in request.items():
        if broken := _broken(name, value, shape.members[name].metadata):
            message = f"1 validation error detected: Value '{str(value)[:300]}' at '{name}'"
            message = f"{message} failed to satisfy constraint: {broken}"
            raise ApiError("ValidationException", message)


def _broken(name: str, value: Any, limits: dict) -> str:
    if limits.get("enum") and value not in limits["enum"]:
        return f"Member must satisfy enum value set: [{', '.join(limits['enum'])}]"
    if isinstance(value, int) and value > limits.get("max", value):
        return f"Member must have value less than or equal to {limits['max']}"
    if isinstance(value, str) and name.endswith("Name"):
        if len(value) > limits.get("max", len(value)):
            return f"Member must have length less than or equal to {limits['max']}"
        if not re.fullmatch(limits.get("pattern", ".*"), value):
            return f"Member must satisfy regular expression pattern: {limits['pattern']}"
    return ""


def refuse_choice(shape: str, where: str, value: str) -> None:
    """Raises ``ValidationException`` where ``value`` is none of that shape's choices."""
    if broken := _broken("", value, {"enum": model().shape_for(shape).metadata["enum"]}):
        message = f"1 validation error detected: Value '{value[:300]}' at '{where}'"
        raise ApiError("ValidationException", f"{message} failed to satisfy constraint: {broken}")


def report(shape: Shape | None, request: dict) -> str:
    """What of the request is missing, unknown or of another type; empty when nothing is."""
    found = ParamValidator().validate(request, shape)
    return "; ".join(found.generate_report().splitlines()) if found.has_errors() else ""
