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
    """Return botocore's model of SageMaker."""
    return ServiceModel(Loader().load_service_model("sagemaker", "service-2"), "sagemaker")


def check(operation: str, request: dict) -> None:
    """Refuse a request that SageMaker cannot read: missing, unknown or mistyped members.

    boto3 checks its own calls; a pipeline step's resolved Arguments are checked only here. A number
    in a string field, such as an Integer parameter in HyperParameters, is refused as on AWS
    (aws/sagemaker-python-sdk#2631). Raises ``ValidationException``.
    """
    shape = model().operation_model(operation).input_shape
    if why := report(shape, request):
        raise ApiError("ValidationException", f"{operation}: {why}")
    if shape is not None and not operation.startswith("Create"):  # their own checks say more
        _check_limits(shape, request)


def shown(operation: str, record: dict) -> dict:
    """Return the members of ``record`` that the answer of the operation has."""
    members = model().operation_model(operation).output_shape.members
    return {name: value for name, value in record.items() if name in members}


def _check_limits(shape: Shape, request: dict) -> None:
    """Refuse a name, choice or number outside its limits, in SageMaker's words."""
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
    """Raise ``ValidationException`` if ``value`` is not one of that shape's choices."""
    if broken := _broken("", value, {"enum": model().shape_for(shape).metadata["enum"]}):
        message = f"1 validation error detected: Value '{value[:300]}' at '{where}'"
        raise ApiError("ValidationException", f"{message} failed to satisfy constraint: {broken}")


def report(shape: Shape | None, request: dict) -> str:
    """Return the missing, unknown or mistyped members of the request; empty if it is valid."""
    found = ParamValidator().validate(request, shape)
    return "; ".join(found.generate_report().splitlines()) if found.has_errors() else ""
