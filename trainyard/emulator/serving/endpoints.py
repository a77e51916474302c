"""CreateEndpoint and its relatives. Models and endpoint configurations are moto's.

An endpoint ends with the emulator, as its containers do; its configuration stays. Run here: one
production variant with one container of AWS's PyTorch inference image. Not run: autoscaling,
several variants, data capture, asynchronous and serverless inference, inference components.
"""

import fnmatch
import re
import threading
from collections.abc import Callable
from pathlib import Path

from trainyard.emulator.api import ApiError
from trainyard.emulator.jobs import images
from trainyard.emulator.jobs.job import Place
from trainyard.emulator.paging import ordered, page
from trainyard.emulator.runtime.interpreter import lacking
from trainyard.emulator.serving.endpoint import Answer, Endpoint

Forward = Callable[[str, dict], dict]
TOOLKIT = "*pytorch-inference*"
MODULE = "sagemaker_pytorch_serving_container"
_NAME = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}")  # the API reference's pattern
_PATH = re.compile(r"/endpoints/([^/]+)/invocations")


class Endpoints:
    """All endpoints of a running emulator. Every method may be called from any thread.

    ``forward(operation, request)`` answers for models, configurations and packages.
    Raises ApiError as AWS does.
    """

    def __init__(self, place: Place, forward: Forward) -> None:
        self._place, self._forward = place, forward
        self._live: dict[str, tuple[Endpoint, dict]] = {}
        self._lock = threading.Lock()
        self._closed = False

    def operations(self) -> dict[str, Callable[[dict], dict]]:
        return {
            "CreateEndpoint": self._create,
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

    def _create(self, request: dict) -> dict:
        name, config = request["EndpointName"], request["EndpointConfigName"]
        if not _NAME.fullmatch(name):
            raise _invalid(f"EndpointName {name!r} must match {_NAME.pattern}")
        variant, container = self._container(config)
        with self._lock:
            if self._closed:
                raise ApiError("ServiceUnavailable", "The emulator is stopping.", 503)
            if name in self._live:
                raise _invalid(f"Cannot create already existing endpoint {name!r}")
            endpoint = Endpoint(self._place, name, variant["VariantName"], container)
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

    def _container(self, config: str) -> tuple[dict, dict]:
        """The configuration's only variant, and what its container is made of."""
        described = self._forward("DescribeEndpointConfig", {"EndpointConfigName": config})
        variants = described["ProductionVariants"]
        if len(variants) != 1:
            raise _invalid(f"{config} has {len(variants)} variants; one is run here")
        model = self._forward("DescribeModel", {"ModelName": variants[0]["ModelName"]})
        found = model.get("Containers") or [model.get("PrimaryContainer") or {}]
        if len(found) != 1:
            raise _invalid(f"model {model['ModelName']} has {len(found)} containers; one is run")
        container = found[0]
        if package := container.get("ModelPackageName"):
            container = self._packaged(package, container.get("Environment") or {})
        _refuse(container, self._place.python)
        return variants[0], container

    def _packaged(self, name: str, environment: dict) -> dict:
        """The container of a model package; the model's environment goes over the package's."""
        package = self._forward("DescribeModelPackage", {"ModelPackageName": name})
        status = package.get("ModelApprovalStatus", "Approved")  # unversioned packages have none
        if status != "Approved":  # CreateModelPackage's documentation of ModelApprovalStatus
            raise _invalid(f"Model package {name} is {status}: approve it to deploy it")
        [container] = package["InferenceSpecification"]["Containers"]
        return container | {"Environment": container.get("Environment", {}) | environment}


def _summary(name: str, endpoint: Endpoint) -> dict:
    return {
        "EndpointName": name,
        "EndpointArn": endpoint.arn,
        "EndpointStatus": endpoint.status,
        "CreationTime": endpoint.created,
        "LastModifiedTime": endpoint.modified,
    }


def _refuse(container: dict, python: Path) -> None:
    image = container.get("Image", "")
    if why := images.refusal(image):
        raise _invalid(why)
    if "amazonaws.com" in image and not fnmatch.fnmatchcase(image, TOOLKIT):
        raise _invalid(
            f"image {image!r} is not served here: what stands in for a container's `serve` is "
            "that of AWS's PyTorch inference images (pytorch-inference)"
        )
    if lacking(python, [MODULE]):
        raise _invalid(
            f"{python}, which stands in for the image, lacks AWS's inference toolkit: "
            f"{python} -m pip install 'trainyard[serving]'"
        )
    if not container.get("ModelDataUrl"):
        raise _invalid("the container has no ModelDataUrl: a model.tar.gz in S3 is served here")


def _invalid(message: str) -> ApiError:
    return ApiError("ValidationException", message)
