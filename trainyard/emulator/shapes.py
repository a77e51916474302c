"""SageMaker's request shapes, as botocore ships them."""

import functools

from botocore.loaders import Loader
from botocore.model import ServiceModel, Shape
from botocore.validate import ParamValidator

from trainyard.emulator.api import ApiError


@functools.cache
def model() -> ServiceModel:
    """botocore's model of SageMaker."""
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


def report(shape: Shape | None, request: dict) -> str:
    """What of the request is missing, unknown or of another type; empty when nothing is."""
    found = ParamValidator().validate(request, shape)
    return "; ".join(found.generate_report().splitlines()) if found.has_errors() else ""
