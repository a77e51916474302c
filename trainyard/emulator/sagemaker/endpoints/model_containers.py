"""The operations on models, and the containers of a model."""

import fnmatch
import hashlib
import json
import re
import shutil
import tarfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainyard.emulator.algorithms.xgboost.facts import parse_repository
from trainyard.emulator.containers.container_engine import find_engine
from trainyard.emulator.containers.node import list_missing_modules
from trainyard.emulator.request_scope import ApiError, make_validation_error
from trainyard.emulator.sagemaker.jobs import container_images
from trainyard.emulator.sagemaker.jobs.transfers import ClientFault, join_key, split_uri

# The table of model servers, which replace the ``serve`` command of images. A server is a script in
# ``containers/`` that loads ``/opt/ml/model`` and handles ``/ping`` and ``/invocations`` on the
# Unix socket named by its argument (``http_front.serve_requests``). To add a server, write the
# script and add a row here.

SCRIPTS = Path(__file__).with_name("containers")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelServer:
    """The server program that serves the models of some images."""

    name: str
    images: tuple[str, ...]
    """Patterns (fnmatch) for an image's repository, its URI between the last slash and the tag."""

    script: str
    """File in ``containers/`` that is started as the container."""

    modules: tuple[str, ...]
    """Modules required in the Python interpreter that runs the server instead of the image."""

    install: str
    """Packages that pip installs for these modules."""

    @property
    def path(self) -> Path:
        return SCRIPTS / self.script


OWN_SERVER = ModelServer(
    name="the image's own server", images=(), script="", modules=(), install=""
)
"""What an image itself starts as ``serve`` in a container engine. It listens on port 8080."""
SERVERS = (
    ModelServer(
        name="AWS's PyTorch inference toolkit",
        images=("*pytorch-inference*",),
        script="pytorch_model.py",
        modules=("sagemaker_pytorch_serving_container",),
        install="sagemaker-pytorch-inference",
    ),
    ModelServer(
        name="AWS's XGBoost server",
        images=("sagemaker-xgboost", "xgboost"),
        script="xgboost_model.py",
        modules=("xgboost", "scipy", "numpy"),
        install="xgboost-cpu",
    ),
    ModelServer(
        name="AWS's scikit-learn server",
        images=("sagemaker-scikit-learn",),
        script="sklearn_model.py",
        modules=("sklearn", "numpy"),
        install="scikit-learn",
    ),
)
"""The model servers. The first also serves images that a user has mapped
(``TRAINYARD_EMULATOR_IMAGES``).
"""


def find_server(image: str, python: Path) -> ModelServer:
    """Return the server for the models of ``image``.

    Raises ``ValidationException`` if the image cannot be served here, or if the interpreter
    ``python`` lacks a module that the server needs.
    """
    name = parse_repository(image)
    if reason := container_images.explain_unusable_image(image):
        raise make_validation_error(reason)
    if container_images.runs_in_engine(image):
        return OWN_SERVER
    match = next(
        (s for s in SERVERS if any(fnmatch.fnmatchcase(name, pattern) for pattern in s.images)),
        None,
    )
    if not match:
        if "amazonaws.com" in image:
            descriptions = "; ".join(f"{s.name} ({', '.join(s.images)})" for s in SERVERS)
            raise make_validation_error(
                f"image {image!r} is not served here. Servers that replace a container's `serve`, "
                f"with their images: {descriptions}"
            )
        match = SERVERS[0]
    if missing := list_missing_modules(python, match.modules):
        raise make_validation_error(
            f"{python}, which replaces the image, lacks {', '.join(missing)} for {match.name}:"
            f" {python} -m pip install {match.install}"
        )
    return match


Forward = Callable[[str, dict], dict]


@dataclass(frozen=True, slots=True)
class Container:
    """Everything needed to start one of a model's containers."""

    server: ModelServer
    image: str
    data: str
    """S3 URI of its model.tar.gz. Empty if the image contains the model."""
    environment: dict[str, str]
    digest: str = ""
    """Digest of the image, if a container engine runs it."""
    has_models: bool = False
    """Whether it is a multi-model container. ``data`` is then the prefix of the models'
    archives.
    """

    @property
    def resolved_image(self) -> str:
        """DescribeEndpoint's ResolvedImage: the repository with the digest, or the image's URI if
        the digest is not known.
        """
        folder, slash, name = self.image.rpartition("/")
        repository = f"{folder}{slash}{re.split('[:@]', name)[0]}"
        return f"{repository}@{self.digest}" if self.digest else self.image


class Models:
    """The models of a state directory. Its methods are thread-safe and raise ApiError as AWS does.

    ``forward(operation, request)`` performs an operation on stored models and model packages.
    ``python`` is the interpreter that replaces images.
    """

    def __init__(self, forward: Forward, python: Path) -> None:
        self._forward, self._python = forward, python

    def create(self, request: dict) -> dict:
        """Store the model as requested. Whether it can be served is only checked when it is
        used.
        """
        single, several = request.get("PrimaryContainer"), request.get("Containers")
        if bool(single) == bool(several):
            raise make_validation_error("A model needs either PrimaryContainer or Containers")
        for container in several or [single]:
            if not container.get("Image") and not container.get("ModelPackageName"):
                raise make_validation_error(
                    "A container of the model has neither Image nor ModelPackageName"
                )
        return self._forward("CreateModel", request)

    def describe(self, name: str) -> dict:
        return self._forward("DescribeModel", {"ModelName": name})

    def list_containers(self, name: str) -> list[Container]:
        """Return the model's containers, in the order in which a request passes through them.

        Raises ``ValidationException`` if the model is missing or cannot be served here.
        """
        model = self.describe(name)
        mode = model.get("InferenceExecutionConfig", {}).get("Mode", "Serial")
        definitions = model.get("Containers") or [model["PrimaryContainer"]]
        if mode != "Serial" and len(definitions) > 1:
            raise make_validation_error(
                f"model {name}: InferenceExecutionConfig.Mode {mode} is not supported here"
            )
        containers = [self._make_container(name, container) for container in definitions]
        own = {container.image for container in containers if container.server is OWN_SERVER}
        if len(containers) > 1 and any(container.has_models for container in containers):
            raise make_validation_error(
                f"model {name}: a multi-model container cannot run beside other containers here"
            )
        if own and len(own) < len({container.image for container in containers}):
            raise make_validation_error(
                f"model {name}: {', '.join(sorted(own))} runs in a container, its other images do "
                "not, and they cannot reach each other: run all in containers, --containers always"
            )
        return containers

    def _make_container(self, model: str, definition: dict) -> Container:
        """Return the container for a definition, which may name a model package. Raises
        ``ValidationException`` if it cannot be served here.
        """
        if package := definition.get("ModelPackageName"):
            definition = self._make_package_container(package, definition.get("Environment") or {})
        data = definition.get("ModelDataUrl")
        if not data:  # the request may have ModelDataSource instead
            source = definition.get("ModelDataSource", {}).get("S3DataSource", {})
            data = source.get("S3Uri", "")
        serves = find_server(definition.get("Image", ""), self._python)
        has_models = definition.get("Mode") == "MultiModel"
        if has_models and serves is not OWN_SERVER:
            raise make_validation_error(
                f"model {model}: Mode MultiModel runs in a container only, and {serves.name} runs "
                "as a process: use SingleModel, or --containers always"
            )
        if not data and serves is not OWN_SERVER:
            raise make_validation_error(
                "the container has no ModelDataUrl: expected a model.tar.gz in S3"
            )
        environment = definition.get("Environment") or {}
        if "SAGEMAKER_INFERENCE_OUTPUT" in environment:
            raise make_validation_error(
                f"model {model}: SAGEMAKER_INFERENCE_OUTPUT is not supported here: leave it out"
            )
        image = find_engine().find_image(definition["Image"]) if serves is OWN_SERVER else None
        digest = image.digest if image else ""
        return Container(serves, definition["Image"], data, environment, digest, has_models)

    def _make_package_container(self, name: str, environment: dict) -> dict:
        """Return the container definition of a model package. Variables in ``environment``, which
        is the model's, override those of the package.
        """
        package = self._forward("DescribeModelPackage", {"ModelPackageName": name})
        # An unversioned package has no status.
        status = package.get("ModelApprovalStatus", "Approved")
        if status != "Approved":  # CreateModelPackage's documentation of ModelApprovalStatus
            raise make_validation_error(
                f"Model package {name} is {status}: approve it to deploy it"
            )
        [container] = package["InferenceSpecification"]["Containers"]
        return container | {"Environment": container.get("Environment", {}) | environment}


# Multi-model containers, which load a model when a request first names it. The contract is the
# developer guide's "Custom Containers Contract for Multi-Model Endpoints": a model is unpacked to
# ``/opt/ml/models/<name>/model``, loaded by ``POST /models``, invoked at ``/models/<name>/invoke``
# and unloaded by ``DELETE``. Only an image's own server, in a container engine, implements it.

FOLDER = "/opt/ml/models"
TARGET = "X-Amzn-Sagemaker-Target-Model"
LOADED, NO_MEMORY = 409, 507
_JSON = {"Content-Type": "application/json", "Accept": "application/json"}

Ask = Callable[[str, str, bytes, dict[str, str], float], Any]
"""Function that sends method, path, body and headers to the container, with a timeout in seconds,
and returns its ``Answer``.
"""


class ModelTable:
    """The models that a multi-model container has loaded. Its methods are thread-safe.

    ``folder`` is FOLDER's path on this machine, ``prefix`` the S3 URI of the archives, and
    ``fetch(uri, target)`` downloads and unpacks one.
    """

    def __init__(
        self, ask: Ask, folder: Path, prefix: str, fetch: Callable[[str, Path], None]
    ) -> None:
        self._ask, self._folder, self._prefix, self._fetch = ask, folder, prefix, fetch
        self._names: list[str] = []  # least recently used first
        self._lock = threading.Lock()

    def invoke(self, body: bytes, headers: dict[str, str], seconds: float) -> Any:
        """Send a request to the model that the header TARGET names, and return its response. If the
        container refuses to load the model, return that response.

        Raises ``ValidationError`` if the header or the archive is missing.
        """
        target = headers.get(TARGET)
        if not target:
            raise ApiError("ValidationError", "The request is missing a target model header")
        name = hashlib.sha256(target.encode()).hexdigest()
        with self._lock:
            if refusal := self._load(name, target, seconds):
                return refusal
        return self._ask("POST", f"/models/{name}/invoke", body, headers, seconds)

    def mark_unloaded(self) -> None:
        """Mark all models as not loaded, because the container is started again."""
        with self._lock:
            self._names.clear()

    def _load(self, name: str, target: str, seconds: float) -> Any:
        """Load the model unless it is loaded. Return None, or the container's response if it
        refused.

        If the container has no memory left, unload the least recently used models first.
        """
        if name in self._names:
            self._names.remove(name)
            self._names.append(name)
            return None
        self._download(target, self._folder / name / "model")
        load_request = {"model_name": name, "url": f"{FOLDER}/{name}/model"}
        headers = _JSON | {TARGET: target}
        while True:
            answer = self._ask(
                "POST", "/models", json.dumps(load_request).encode(), headers, seconds
            )
            if answer.status != NO_MEMORY or not self._names:
                break
            self._ask("DELETE", f"/models/{self._names.pop(0)}", b"", {}, seconds)
        if answer.is_error and answer.status != LOADED:
            return answer
        self._names.append(name)
        return None

    def _download(self, target: str, folder: Path) -> None:
        """Download and unpack the model's archive, unless that was done before: as on AWS, a later
        change of the archive has no effect.
        """
        if folder.exists():
            return
        bucket, prefix = split_uri(self._prefix)
        key = join_key(prefix, target)
        part = folder.with_name("part")
        part.mkdir(parents=True)
        try:
            self._fetch(f"s3://{bucket}/{key}", part)
            part.rename(folder)
        except (ApiError, ClientFault, tarfile.TarError, OSError) as error:
            raise ApiError(
                "ValidationError",
                f"Failed to download model data(bucket: {bucket}, key: {key}). Please ensure that "
                "there is an object located at the URL and that the role passed to CreateModel "
                f"has permissions to download the model. ({getattr(error, 'message', error)})",
            ) from None
        finally:
            shutil.rmtree(part, ignore_errors=True)
