"""CreateModel and related operations, and the containers of a model."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trainyard.emulator.containers.container_engine import find_engine
from trainyard.emulator.request_scope import ApiError
from trainyard.emulator.sagemaker.endpoints.model_servers import OWN_SERVER, ModelServer, server

Forward = Callable[[str, dict], dict]


@dataclass(frozen=True, slots=True)
class Container:
    """Everything needed to start one of a model's containers."""

    server: ModelServer
    image: str
    data: str
    """S3 URI of its model.tar.gz; empty for an image that holds its model."""
    environment: dict[str, str]
    digest: str = ""
    """The image's, where a container engine runs it."""
    has_models: bool = False
    """Whether it is a multi-model container: ``data`` is the prefix of their archives."""

    @property
    def resolved_image(self) -> str:
        """DescribeEndpoint's ResolvedImage: the repository with the digest, if that is known."""
        folder, slash, name = self.image.rpartition("/")
        repository = f"{folder}{slash}{re.split('[:@]', name)[0]}"
        return f"{repository}@{self.digest}" if self.digest else self.image


class Models:
    """The models of a state directory. Its methods are thread-safe.

    ``forward(operation, request)`` stores models, and answers for model packages; ``python``: the
    interpreter that replaces images. Raises ApiError as AWS does.
    """

    def __init__(self, forward: Forward, python: Path) -> None:
        self._forward, self._python = forward, python

    def create(self, request: dict) -> dict:
        """Store the model as requested; whether it can be served is checked when it is used."""
        single, several = request.get("PrimaryContainer"), request.get("Containers")
        if bool(single) == bool(several):
            raise _invalid("A model needs either PrimaryContainer or Containers")
        for container in several or [single]:
            if not container.get("Image") and not container.get("ModelPackageName"):
                raise _invalid("A container of the model has neither Image nor ModelPackageName")
        return self._forward("CreateModel", request)

    def describe(self, name: str) -> dict:
        return self._forward("DescribeModel", {"ModelName": name})

    def containers(self, name: str) -> list[Container]:
        """Return the containers in the order in which a request passes them.

        Raises ``ValidationException`` for a missing model, or one that is not served here.
        """
        model = self.describe(name)
        mode = model.get("InferenceExecutionConfig", {}).get("Mode", "Serial")
        definitions = model.get("Containers") or [model["PrimaryContainer"]]
        if mode != "Serial" and len(definitions) > 1:
            raise _invalid(f"model {name}: InferenceExecutionConfig.Mode {mode} is not run here")
        containers = [self._container(name, container) for container in definitions]
        own = {container.image for container in containers if container.server is OWN_SERVER}
        if len(containers) > 1 and any(container.has_models for container in containers):
            raise _invalid(f"model {name}: a multi-model container is not run among others here")
        if own and len(own) < len({container.image for container in containers}):
            raise _invalid(
                f"model {name}: {', '.join(sorted(own))} runs in a container, its other images do "
                "not, and they cannot reach each other: run all in containers, --containers always"
            )
        return containers

    def _container(self, model: str, definition: dict) -> Container:
        if package := definition.get("ModelPackageName"):
            definition = self._package_container(package, definition.get("Environment") or {})
        data = definition.get("ModelDataUrl")
        if not data:  # ModelDataSource replaces it
            source = definition.get("ModelDataSource", {}).get("S3DataSource", {})
            data = source.get("S3Uri", "")
        serves = server(definition.get("Image", ""), self._python)
        has_models = definition.get("Mode") == "MultiModel"
        if has_models and serves is not OWN_SERVER:
            raise _invalid(
                f"model {model}: Mode MultiModel runs in a container only, and {serves.name} runs "
                "as a process: use SingleModel, or --containers always"
            )
        if not data and serves is not OWN_SERVER:
            raise _invalid("the container has no ModelDataUrl: expected a model.tar.gz in S3")
        environment = definition.get("Environment") or {}
        if "SAGEMAKER_INFERENCE_OUTPUT" in environment:
            raise _invalid(f"model {model}: SAGEMAKER_INFERENCE_OUTPUT is not served: leave it out")
        image = find_engine().image(definition["Image"]) if serves is OWN_SERVER else None
        digest = image.digest if image else ""
        return Container(serves, definition["Image"], data, environment, digest, has_models)

    def _package_container(self, name: str, environment: dict) -> dict:
        """Return the container of a model package; the model's environment overrides the
        package's.
        """
        package = self._forward("DescribeModelPackage", {"ModelPackageName": name})
        status = package.get("ModelApprovalStatus", "Approved")  # else unversioned
        if status != "Approved":  # CreateModelPackage's documentation of ModelApprovalStatus
            raise _invalid(f"Model package {name} is {status}: approve it to deploy it")
        [container] = package["InferenceSpecification"]["Containers"]
        return container | {"Environment": container.get("Environment", {}) | environment}


def _invalid(message: str) -> ApiError:
    return ApiError("ValidationException", message)
