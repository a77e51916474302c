"""Which model server stands in for which image's ``serve``: one table.

A server is a script in ``containers/`` that loads ``/opt/ml/model`` and answers ``/ping`` and
``/invocations`` on the Unix socket that is its argument (``http_front.serve``). To add one, write
the script and a row here.
"""

import fnmatch
from dataclasses import dataclass
from pathlib import Path

from trainyard.emulator.algorithms.xgboost.facts import repository
from trainyard.emulator.api import ApiError
from trainyard.emulator.jobs import container_images as images
from trainyard.emulator.runtime.interpreter import lacking

SCRIPTS = Path(__file__).with_name("containers")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelServer:
    """What serves the models of some images."""

    name: str
    images: tuple[str, ...]
    """Patterns (fnmatch) for an image's repository, its URI between the last slash and the tag."""

    script: str
    """The file in ``containers/`` that is started as the container."""

    modules: tuple[str, ...]
    """What the interpreter that stands in for the image must have."""

    install: str
    """What pip installs for these."""

    @property
    def path(self) -> Path:
        return SCRIPTS / self.script


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
"""The first is also that of images which a user has mapped (``TRAINYARD_EMULATOR_IMAGES``)."""


def server(image: str, python: Path) -> ModelServer:
    """What serves the models of ``image``.

    Raises ``ValidationException`` when nothing here does, or when ``python`` lacks what it needs.
    """
    name = repository(image)
    if why := images.refusal(image):
        raise _invalid(why)
    found = next((s for s in SERVERS if _matches(name, s.images)), None)
    if not found:
        if "amazonaws.com" in image:
            known = "; ".join(f"{s.name} ({', '.join(s.images)})" for s in SERVERS)
            raise _invalid(
                f"image {image!r} is not served here: what stands in for a container's `serve` "
                f"is {known}"
            )
        found = SERVERS[0]
    if missing := lacking(python, found.modules):
        raise _invalid(
            f"{python}, which stands in for the image, lacks {', '.join(missing)} for {found.name}:"
            f" {python} -m pip install {found.install}"
        )
    return found


def _matches(repository: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(repository, pattern) for pattern in patterns)


def _invalid(message: str) -> ApiError:
    return ApiError("ValidationException", message)
