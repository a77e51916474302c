"""CreateEndpointConfig: refused if no endpoint could run it, else stored."""

from collections.abc import Iterator
from functools import partial

from trainyard.emulator.api import ApiError
from trainyard.emulator.jobs.request_checks import Check
from trainyard.emulator.jobs.transfers import ClientFault, split_uri
from trainyard.emulator.request_shapes import refuse_choice
from trainyard.emulator.serving.model_containers import Forward, Models

NOT_RUN = {
    "AsyncInferenceConfig": "asynchronous inference",
    "ExplainerConfig": "an explainer",
    "ShadowProductionVariants": "shadow variants",
    "CrossRegionTrafficConfig": "traffic across regions",
}
"""Member of the request → feature that it asks for."""
NOT_RUN_VARIANT = {
    "ServerlessConfig": "serverless inference",
    "CoreDumpConfig": "core dumps",
    "CapacityReservationConfig": "reserved capacity",
}


class EndpointConfigs:
    """The endpoint configurations of a state directory. Thread-safe; raises errors as AWS does."""

    def __init__(self, forward: Forward, models: Models) -> None:
        self._forward, self._models = forward, models

    def create(self, request: dict) -> dict:
        """Raise ``ValidationException`` for a missing model, and for what an endpoint here cannot
        do.
        """
        for check in checks(request):
            check()
        variants = request["ProductionVariants"]
        names = [variant["VariantName"] for variant in variants]
        if not 1 <= len(variants) <= 10 or len(set(names)) < len(names):
            raise _invalid(f"ProductionVariants {names}: expected 1 to 10 with a name each")
        for variant in variants:
            self._check(variant)
        if not sum(variant.get("InitialVariantWeight", 1.0) for variant in variants):
            raise _invalid("ProductionVariants: at least one InitialVariantWeight must not be 0")
        _check_capture(request.get("DataCaptureConfig") or {})
        return self._forward("CreateEndpointConfig", request)

    def describe(self, name: str) -> dict:
        return self._forward("DescribeEndpointConfig", {"EndpointConfigName": name})

    def _check(self, variant: dict) -> None:
        location = f"variant {variant['VariantName']}"
        if not variant.get("ModelName"):
            raise _invalid(f"{location} has no ModelName: inference components are not run here")
        if not variant.get("InstanceType"):
            raise _invalid(f"{location} has no InstanceType")
        refuse_choice("ProductionVariantInstanceType", "instanceType", variant["InstanceType"])
        self._models.describe(variant["ModelName"])


def checks(request: dict) -> Iterator[Check]:
    """Iterate over the checks that refuse what is not run here."""
    for member, feature in NOT_RUN.items():
        yield partial(_refuse_member, "", request, member, feature)
    for variant in request["ProductionVariants"]:
        for member, feature in NOT_RUN_VARIANT.items():
            location = f"variant {variant['VariantName']!r}: "
            yield partial(_refuse_member, location, variant, member, feature)


def _refuse_member(location: str, body: dict, member: str, feature: str) -> None:
    if body.get(member):
        raise _invalid(f"{location}{member}: {feature} is not run here")


def _check_capture(capture: dict) -> None:
    if not capture:
        return
    try:
        split_uri(capture["DestinationS3Uri"])
    except ClientFault as fault:
        raise _invalid(f"DataCaptureConfig.DestinationS3Uri: {fault}") from None


def _invalid(message: str) -> ApiError:
    return ApiError("ValidationException", message)
