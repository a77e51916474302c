"""The operations on endpoints and their configurations, and InvokeEndpoint.

An endpoint stops when the emulator stops, as its containers do; its configuration is stored. Not
supported: autoscaling, shadow variants, asynchronous and serverless inference, inference
components.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from trainyard.emulator.cloudwatch.alarms import Alarms
from trainyard.emulator.request_scope import ApiError, make_page, make_validation_error, sort_items
from trainyard.emulator.request_shapes import Check, check_enum_value
from trainyard.emulator.sagemaker.endpoints.endpoint import (
    Endpoint,
    make_endpoint_arn,
    plan_deployment,
)
from trainyard.emulator.sagemaker.endpoints.invocations import Invocations, Reply
from trainyard.emulator.sagemaker.endpoints.model_containers import Forward, Models
from trainyard.emulator.sagemaker.jobs.job import JobServices
from trainyard.emulator.sagemaker.jobs.transfers import check_uri

# Endpoint configurations. CreateEndpointConfig refuses what no endpoint here could run, and stores
# everything else.

NOT_RUN = {
    "AsyncInferenceConfig": "asynchronous inference",
    "ExplainerConfig": "an explainer",
    "ShadowProductionVariants": "shadow variants",
    "CrossRegionTrafficConfig": "traffic across regions",
}
"""Mapping of a member of the request to the unsupported feature that it requests."""
NOT_RUN_VARIANT = {
    "ServerlessConfig": "serverless inference",
    "CoreDumpConfig": "core dumps",
    "CapacityReservationConfig": "reserved capacity",
}


class EndpointConfigs:
    """The endpoint configurations of a state directory. Its methods are thread-safe and raise
    ApiError as AWS does.
    """

    def __init__(self, forward: Forward, models: Models) -> None:
        self._forward, self._models = forward, models

    def create(self, request: dict) -> dict:
        """Check and store an endpoint configuration.

        Raises ``ValidationException`` if a model is missing, or if the request needs something that
        an endpoint cannot do here.
        """
        for check in iter_checks(request):
            check()
        variants = request["ProductionVariants"]
        names = [variant["VariantName"] for variant in variants]
        if not 1 <= len(variants) <= 10 or len(set(names)) < len(names):
            raise make_validation_error(
                f"ProductionVariants {names}: expected 1 to 10 variants with unique names"
            )
        for variant in variants:
            location = f"variant {variant['VariantName']}"
            if not variant.get("ModelName"):
                raise make_validation_error(
                    f"{location} has no ModelName: inference components are not supported here"
                )
            if not variant.get("InstanceType"):
                raise make_validation_error(f"{location} has no InstanceType")
            check_enum_value(
                "ProductionVariantInstanceType", "instanceType", variant["InstanceType"]
            )
            self._models.describe(variant["ModelName"])
        if not sum(variant.get("InitialVariantWeight", 1.0) for variant in variants):
            raise make_validation_error(
                "ProductionVariants: at least one InitialVariantWeight must not be 0"
            )
        if capture := request.get("DataCaptureConfig"):
            check_uri("DataCaptureConfig.DestinationS3Uri", capture["DestinationS3Uri"])
        return self._forward("CreateEndpointConfig", request)

    def describe(self, name: str) -> dict:
        return self._forward("DescribeEndpointConfig", {"EndpointConfigName": name})


def iter_checks(request: dict) -> Iterator[Check]:
    """Iterate over the checks that refuse features that the emulator does not have."""
    for member, feature in NOT_RUN.items():
        yield partial(_refuse_member, "", request, member, feature)
    for variant in request["ProductionVariants"]:
        for member, feature in NOT_RUN_VARIANT.items():
            location = f"variant {variant['VariantName']!r}: "
            yield partial(_refuse_member, location, variant, member, feature)


def _refuse_member(location: str, body: dict, member: str, feature: str) -> None:
    if body.get(member):
        raise make_validation_error(f"{location}{member}: {feature} is not supported here")


SUMMARY = ("EndpointName", "EndpointArn", "EndpointStatus", "CreationTime", "LastModifiedTime")
NOT_RETAINED = ("RetainAllVariantProperties", "RetainDeploymentConfig")


class Endpoints:
    """The endpoints of a running emulator. Its methods are thread-safe.

    Raises ApiError as AWS does.
    """

    def __init__(self, services: JobServices, configs: EndpointConfigs, alarms: Alarms) -> None:
        self._job_services, self._configs, self._alarms = services, configs, alarms
        self._live: dict[str, Endpoint] = {}
        """Endpoints by their names in lower case, as in the ARN."""
        self._lock = threading.Lock()
        self._is_closed = False
        self._invocations = Invocations(services)

    def list_operations(self) -> dict[str, Callable[[dict], dict]]:
        return {
            "CreateEndpoint": self.create,
            "DescribeEndpoint": self._describe,
            "ListEndpoints": self._list,
            "UpdateEndpoint": self.update,
            "DeleteEndpoint": self.delete,
        }

    def invoke(self, path: str, body: bytes, headers: dict[str, str]) -> Reply:
        """Handle InvokeEndpoint for the request path ``path``.

        Raises ``ValidationError``, ``ModelError``.
        """
        return self._invocations.handle_request(self._find, path, body, headers)

    def close(self) -> None:
        """Stop every endpoint. Return when none of their processes is left."""
        with self._lock:
            self._is_closed = True
            live, self._live = list(self._live.values()), {}
        for endpoint in live:
            endpoint.stop()
        # After the endpoints have stopped, because their last responses are captured, too.
        self._invocations.close()

    def exists(self, name: str) -> bool:
        return name.lower() in self._live

    def create(self, request: dict) -> dict:
        """Handle CreateEndpoint. The endpoint then starts in the background."""
        name = request["EndpointName"]
        config = self._configs.describe(request["EndpointConfigName"])
        deployment_config = request.get("DeploymentConfig") or {}
        # Called only for the errors that it raises: a new endpoint has no fleet to shift requests
        # from.
        plan_deployment(deployment_config, _count_instances(config))
        with self._lock:
            if self._is_closed:
                raise ApiError("ServiceUnavailable", "The emulator is stopping.", 503)
            if name.lower() in self._live:
                raise make_validation_error(
                    f'Cannot create already existing endpoint "{make_endpoint_arn(name)}".'
                )
            endpoint = self._live[name.lower()] = Endpoint(
                self._job_services, name, config, self._list_active_alarms
            )
            endpoint.deployment_config = deployment_config
        endpoint.start()
        return {"EndpointArn": endpoint.arn}

    def update(self, request: dict) -> dict:
        """Handle UpdateEndpoint. The update then runs in the background."""
        endpoint = self._find(request["EndpointName"])
        config = self._configs.describe(request["EndpointConfigName"])
        for member in NOT_RETAINED:
            if request.get(member):
                raise make_validation_error(
                    f"{member} is not supported here: give all values in the new configuration"
                )
        deployment_config = request.get("DeploymentConfig") or {}
        deployment = plan_deployment(deployment_config, _count_instances(config))
        self._list_active_alarms(deployment.alarms)  # raises if an alarm does not exist
        endpoint.update(config, deployment, deployment_config)
        return {"EndpointArn": endpoint.arn}

    def _describe(self, request: dict) -> dict:
        """Handle DescribeEndpoint, including the state of data capture."""
        endpoint = self._find(request["EndpointName"])
        capture = endpoint.config.get("DataCaptureConfig")
        if not capture:
            return endpoint.describe()
        is_enabled = capture.get("EnableCapture", False)
        return endpoint.describe() | {
            "DataCaptureConfig": {
                "EnableCapture": is_enabled,
                "CaptureStatus": "Started" if is_enabled else "Stopped",
                "CurrentSamplingPercentage": capture["InitialSamplingPercentage"],
                "DestinationS3Uri": capture["DestinationS3Uri"],
                "KmsKeyId": capture.get("KmsKeyId", ""),
            }
        }

    def _list(self, request: dict) -> dict:
        part, status = request.get("NameContains", ""), request.get("StatusEquals")
        descriptions = [endpoint.describe() for endpoint in list(self._live.values())]
        summaries = [
            {key: entry[key] for key in SUMMARY}
            for entry in descriptions
            if part in entry["EndpointName"] and status in (None, entry["EndpointStatus"])
        ]
        keys = {"Name": "EndpointName", "CreationTime": "CreationTime", "Status": "EndpointStatus"}
        summaries = sort_items(summaries, request, keys, "CreationTime", "Descending")
        return make_page("Endpoints", summaries, request, 10, lambda entry: entry)

    def delete(self, request: dict) -> dict:
        """Handle DeleteEndpoint. Return when none of the endpoint's processes is left."""
        endpoint = self._find(request["EndpointName"])
        # Remove it from the table first, so that no new request finds it.
        with self._lock:
            self._live.pop(request["EndpointName"].lower(), None)
        endpoint.stop()
        self._invocations.flush_endpoint(endpoint.name)
        return {}

    def _find(self, name: str) -> Endpoint:
        if not self.exists(name):
            raise make_validation_error(f'Could not find endpoint "{make_endpoint_arn(name)}".')
        return self._live[name.lower()]

    def _list_active_alarms(self, names: Iterable[str]) -> list[str]:
        """Return the names of the given alarms that are in the state ALARM.

        Raises ``ValidationException`` if an alarm does not exist.
        """
        alarm_names = list(names)
        states = self._alarms.read_states(alarm_names)
        if missing := [name for name in alarm_names if name not in states]:
            raise make_validation_error(
                f"AutoRollbackConfiguration: alarm {', '.join(missing)} does not exist"
            )
        return [name for name, state in states.items() if state == "ALARM"]


def _count_instances(config: dict) -> int:
    return sum(variant.get("InitialInstanceCount", 1) for variant in config["ProductionVariants"])
