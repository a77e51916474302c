"""The table of model servers that replace the ``serve`` of images.

A server is a script in ``containers/`` that loads ``/opt/ml/model`` and answers ``/ping`` and
``/invocations`` on the Unix socket named by its argument (``http_front.serve``). To add a server,
write the script and a row here.
"""

import fnmatch
import json
from dataclasses import dataclass
from pathlib import Path

from trainyard.emulator.algorithms.xgboost.facts import repository
from trainyard.emulator.containers.interpreter import lacking
from trainyard.emulator.request_scope import ApiError
from trainyard.emulator.sagemaker.jobs import container_images

SCRIPTS = Path(__file__).with_name("containers")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelServer:
    """A server for the models of some images."""

    name: str
    images: tuple[str, ...]
    """Patterns (fnmatch) for an image's repository, its URI between the last slash and the tag."""

    script: str
    """File in ``containers/`` that is started as the container."""

    modules: tuple[str, ...]
    """Modules that the interpreter that replaces the image must have."""

    install: str
    """Packages that pip installs for these modules."""

    crash: tuple[int, bytes, str]
    """Status, body and content type that a request gets whose process ends meanwhile."""

    @property
    def path(self) -> Path:
        return SCRIPTS / self.script


WORKER_DIED = json.dumps(
    {"code": 500, "type": "InternalServerException", "message": "Worker died."}, indent=2
).encode()
"""TorchServe's answer (frontend, WorkerLifeCycle)."""
BAD_GATEWAY = b"""<html>\r
<head><title>502 Bad Gateway</title></head>\r
<body>\r
<center><h1>502 Bad Gateway</h1></center>\r
<hr><center>nginx</center>\r
</body>\r
</html>\r
"""
"""Answer of nginx, before gunicorn in AWS's XGBoost and scikit-learn images."""
_NGINX = (502, BAD_GATEWAY, "text/html")

OWN_SERVER = ModelServer(
    name="the image's own server",
    images=(),
    script="",
    modules=(),
    install="",
    crash=(0, b"the connection to the container broke off", "text/plain"),
)
"""What an image starts as ``serve`` in a container engine; it answers at port 8080."""
SERVERS = (
    ModelServer(
        name="AWS's PyTorch inference toolkit",
        images=("*pytorch-inference*",),
        script="pytorch_model.py",
        modules=("sagemaker_pytorch_serving_container",),
        install="sagemaker-pytorch-inference",
        crash=(500, WORKER_DIED, "application/json"),
    ),
    ModelServer(
        name="AWS's XGBoost server",
        images=("sagemaker-xgboost", "xgboost"),
        script="xgboost_model.py",
        modules=("xgboost", "scipy", "numpy"),
        install="xgboost-cpu",
        crash=_NGINX,
    ),
    ModelServer(
        name="AWS's scikit-learn server",
        images=("sagemaker-scikit-learn",),
        script="sklearn_model.py",
        modules=("sklearn", "numpy"),
        install="scikit-learn",
        crash=_NGINX,
    ),
)
"""The model servers; the first also serves images that a user has mapped
(``TRAINYARD_EMULATOR_IMAGES``)."""


def server(image: str, python: Path) -> ModelServer:
    """Return the server for the models of ``image``.

    Raises ``ValidationException`` for an image that is not served here, or if ``python`` lacks a
    module.
    """
    name = repository(image)
    if reason := container_images.refusal(image):
        raise _invalid(reason)
    if container_images.runs_in_engine(image):
        return OWN_SERVER
    match = next(
        (s for s in SERVERS if any(fnmatch.fnmatchcase(name, pattern) for pattern in s.images)),
        None,
    )
    if not match:
        if "amazonaws.com" in image:
            descriptions = "; ".join(f"{s.name} ({', '.join(s.images)})" for s in SERVERS)
            raise _invalid(
                f"image {image!r} is not served here: what replaces a container's `serve` "
                f"is {descriptions}"
            )
        match = SERVERS[0]
    if missing := lacking(python, match.modules):
        raise _invalid(
            f"{python}, which replaces the image, lacks {', '.join(missing)} for {match.name}:"
            f" {python} -m pip install {match.install}"
        )
    return match


def _invalid(message: str) -> ApiError:
    return ApiError("ValidationException", message)
