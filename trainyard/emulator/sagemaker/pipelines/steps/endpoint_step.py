"""EndpointConfig and Endpoint steps: create a configuration, and an endpoint that serves it."""

import time
from collections.abc import Iterable
from pathlib import Path

from trainyard.emulator.request_scope import ApiError
from trainyard.emulator.request_shapes import Check
from trainyard.emulator.sagemaker.endpoints import endpoints
from trainyard.emulator.sagemaker.pipelines.steps.runner import (
    Attempt,
    Runner,
    StepFailed,
    StepStopped,
    make_failure,
    runs,
)

POLL_SECONDS = 0.1  # seconds between checks of an endpoint's status
UNDER_WAY = ("Creating", "Updating", "RollingBack")


@runs("EndpointConfig")
class EndpointConfigRunner(Runner):
    """Call CreateEndpointConfig."""

    @staticmethod
    def iter_checks(step_type: str, arguments: dict, python: Path) -> Iterable[Check]:
        return endpoints.iter_checks(arguments)

    def run(self, attempt: Attempt) -> None:
        name = attempt.arguments.get("EndpointConfigName") or attempt.name
        request = attempt.arguments | {"EndpointConfigName": name}
        try:
            answer = self._services.forward("CreateEndpointConfig", request)
        except ApiError as error:
            raise make_failure("CreateEndpointConfig", error) from None
        attempt.note({"Arn": answer["EndpointConfigArn"]})

    def describe(self, metadata: dict) -> dict:
        name = metadata["Arn"].rpartition("/")[2]
        return self._services.forward("DescribeEndpointConfig", {"EndpointConfigName": name})


@runs("Endpoint")
class EndpointRunner(Runner):
    """Create the endpoint, or update the one with that name, and wait until it is in service."""

    def run(self, attempt: Attempt) -> None:
        request = attempt.arguments
        name = request["EndpointName"]
        verb = "Update" if self._services.endpoints.exists(name) else "Create"
        if verb == "Update":
            # UpdateEndpoint does not accept tags.
            request = {key: value for key, value in request.items() if key != "Tags"}
        try:
            answer = self._services.forward(f"{verb}Endpoint", request)
        except ApiError as error:
            raise make_failure(f"{verb}Endpoint", error) from None
        attempt.note({"Arn": answer["EndpointArn"]})
        self._wait_until_in_service(name, request["EndpointConfigName"])

    def describe(self, metadata: dict) -> dict:
        return self._services.forward(
            "DescribeEndpoint", {"EndpointName": metadata["Arn"].rpartition("/")[2]}
        )

    def _wait_until_in_service(self, name: str, config: str) -> None:
        """Wait until no change of the endpoint is in progress. Raises StepStopped if it was
        deleted, and StepFailed if it is not in service with ``config``.
        """
        try:
            while (endpoint := self._describe(name))["EndpointStatus"] in UNDER_WAY:
                time.sleep(POLL_SECONDS)
        except ApiError:  # the endpoint was deleted
            raise StepStopped from None
        if endpoint["EndpointStatus"] != "InService" or endpoint["EndpointConfigName"] != config:
            reason = endpoint.get("FailureReason", "it does not serve")
            raise StepFailed(
                f"ClientError: endpoint {name} is not in service with {config}: {reason}"
            )

    def _describe(self, name: str) -> dict:
        return self._services.forward("DescribeEndpoint", {"EndpointName": name})
