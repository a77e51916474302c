"""CreateEndpoint and its relatives.

An endpoint ends with the emulator, as its containers do; its configuration stays. Run here: one
production variant with one container of AWS's PyTorch inference image. Not run: autoscaling,
several variants, data capture, asynchronous and serverless inference, inference components.
"""

import re
import threading
from collections.abc import Callable

from trainyard.emulator.api import ApiError
from trainyard.emulator.jobs.job import Place
from trainyard.emulator.paging import ordered, page
from trainyard.emulator.serving.configs import EndpointConfigs
from trainyard.emulator.serving.endpoint import Endpoint
from trainyard.emulator.serving.instance import Answer

_NAME = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}")  # the API reference's pattern
_PATH = re.compile(r"/endpoints/([^/]+)/invocations")


class Endpoints:
    """All endpoints of a running emulator. Every method may be called from any thread.

    Raises ApiError as AWS does.
    """

    def __init__(self, place: Place, configs: EndpointConfigs) -> None:
        self._place, self._configs = place, configs
        self._live: dict[str, tuple[Endpoint, dict]] = {}
        self._lock = threading.Lock()
        self._closed = False

    def operations(self) -> dict[str, Callable[[dict], dict]]:
        return {
            "CreateEndpoint": self.create,
            "DescribeEndpoint": self._describe,
            "ListEndpoints": self._list,
            "DeleteEndpoint": self._delete,
        }

    def invoke(self, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        """InvokeEndpoint; ``path`` is the request's. Raises ``ValidationError``, ``ModelError``."""
        match = _PATH.fullmatch(path)
        if not match:
            raise ApiError("UnknownOperationException", f"{path}: only InvokeEndpoint is run here")
        endpoint, _ = self._find(match[1])
        if endpoint.status != "InService":
            message = f"Endpoint {match[1]} of account is not in service: {endpoint.status}"
            raise ApiError("ValidationError", message)
        return endpoint.invoke(body, headers)

    def close(self) -> None:
        """Stops every endpoint; returns when no process of theirs is left."""
        with self._lock:
            self._closed = True
            live, self._live = list(self._live.values()), {}
        for endpoint, _ in live:
            endpoint.stop()

    def create(self, request: dict) -> dict:
        name, config = request["EndpointName"], request["EndpointConfigName"]
        if not _NAME.fullmatch(name):
            raise _invalid(f"EndpointName {name!r} must match {_NAME.pattern}")
        variant = self._variant(config)
        model = self._place.models.describe(variant["ModelName"])
        containers = self._place.models.containers(variant["ModelName"])
        with self._lock:
            if self._closed:
                raise ApiError("ServiceUnavailable", "The emulator is stopping.", 503)
            if name in self._live:
                raise _invalid(f"Cannot create already existing endpoint {name!r}")
            endpoint = Endpoint(self._place, name, variant["VariantName"], model, containers)
            self._live[name] = endpoint, {"EndpointConfigName": config, "variant": variant}
        endpoint.start()
        return {"EndpointArn": endpoint.arn}

    def _describe(self, request: dict) -> dict:
        name = request["EndpointName"]
        endpoint, about = self._find(name)
        variant = about["variant"]
        count = variant.get("InitialInstanceCount", 1)
        answer = _summary(name, endpoint) | {"EndpointConfigName": about["EndpointConfigName"]}
        answer["ProductionVariants"] = [
            {
                "VariantName": variant["VariantName"],
                "DesiredInstanceCount": count,
                "CurrentInstanceCount": count,
            }
        ]
        return answer | ({"FailureReason": endpoint.failure} if endpoint.failure else {})

    def _list(self, request: dict) -> dict:
        part, status = request.get("NameContains", ""), request.get("StatusEquals")
        found = [
            _summary(name, endpoint)
            for name, (endpoint, _) in self._live.items()
            if part in name and status in (None, endpoint.status)
        ]
        keys = {"Name": "EndpointName", "CreationTime": "CreationTime", "Status": "EndpointStatus"}
        found = ordered(found, request, keys, "CreationTime", "Descending")
        return page("Endpoints", found, request, 10, lambda entry: entry)

    def _delete(self, request: dict) -> dict:
        endpoint, _ = self._find(request["EndpointName"])
        with self._lock:
            self._live.pop(request["EndpointName"], None)
        endpoint.stop()
        return {}

    def _find(self, name: str) -> tuple[Endpoint, dict]:
        if name not in self._live:
            raise _invalid(f'Could not find endpoint "{name}".')
        return self._live[name]

    def _variant(self, config: str) -> dict:
        """The configuration's only variant."""
        described = self._configs.describe(config)
        variants = described["ProductionVariants"]
        if len(variants) != 1:
            raise _invalid(f"{config} has {len(variants)} variants; one is run here")
        return variants[0]


def _summary(name: str, endpoint: Endpoint) -> dict:
    return {
        "EndpointName": name,
        "EndpointArn": endpoint.arn,
        "EndpointStatus": endpoint.status,
        "CreationTime": endpoint.created,
        "LastModifiedTime": endpoint.modified,
    }


def _invalid(message: str) -> ApiError:
    return ApiError("ValidationException", message)
