"""Which images this machine's Python can replace, and which run in a container engine.

AWS's images for PyTorch, scikit-learn and XGBoost contain Python with those libraries, and so does
the interpreter that runs the emulator. Any other image runs in the engine, unless the user maps it
to the interpreter. Without an engine it is refused, because the emulator cannot guess what it does.
"""

import fnmatch
import os
from collections.abc import Mapping
from pathlib import Path

from trainyard.common.errors import EmulatorError
from trainyard.emulator.algorithms.xgboost.facts import (
    is_other_algorithm_image,
    is_xgboost_image,
    parse_repository,
)
from trainyard.emulator.containers.container_engine import find_engine, read_container_mode

PACKAGES = Path(__file__).parents[2] / "algorithms/image"
"""Replacements for AWS's own packages in its XGBoost and scikit-learn images."""
VARIABLE = "TRAINYARD_EMULATOR_IMAGES"
"""Environment variable with additional patterns (fnmatch, on the image's URI), separated by commas
or spaces.
"""

KNOWN_IMAGES = (
    "pytorch-training",  # AWS Deep Learning Containers
    "pytorch-training-*",
    "pytorch-inference",
    "pytorch-inference-*",
    "huggingface-pytorch-*",
    "pytorch-smp",  # SageMaker model parallel library v2
    "smdistributed-modelparallel",
    "sagemaker-pytorch*",
    "sagemaker-scikit-learn",
    "sagemaker-xgboost",
    "sagemaker-model-monitor-analyzer",
    "sagemaker-base-python*",
    "sagemaker-distribution*",
)


def build_package_environment(image: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return ``environment``'s PYTHONPATH, extended by replacements for the packages that only
    ``image`` has. Return {} if it has none.
    """
    if not is_xgboost_image(image) and parse_repository(image) != "sagemaker-scikit-learn":
        return {}
    parts = [environment.get("PYTHONPATH", ""), str(PACKAGES)]
    return {"PYTHONPATH": os.pathsep.join(filter(None, parts))}


def explain_unusable_image(image: str) -> str | None:
    """Return why ``image`` cannot run here and what to do about it. Return None if it can run."""
    if not isinstance(image, str):  # in a pipeline definition it may be any JSON value
        return f"image {image!r} is not text"
    if not runs_in_engine(image):
        return _explain_no_replacement(image)
    try:
        why = find_engine().explain_missing_image(image)
    except EmulatorError as error:
        why = str(error)
    if why is None or read_container_mode() == "always":
        return why
    return f"{_explain_no_replacement(image)}. Nor does it run in a container: {why}"


def runs_in_engine(image: str) -> bool:
    """Return whether a container engine runs the image, and not this machine's Python."""
    mode = read_container_mode()
    if mode == "never" or not image:
        return False
    return mode == "always" or _explain_no_replacement(image) is not None


def _explain_no_replacement(image: str) -> str | None:
    """Return why this machine's Python cannot replace the image. Return None if it can."""
    name = parse_repository(image)
    if is_xgboost_image(image) or any(
        fnmatch.fnmatchcase(name, pattern) for pattern in KNOWN_IMAGES
    ):
        return None
    patterns = os.environ.get(VARIABLE, "").replace(",", " ").split()
    if any(fnmatch.fnmatchcase(image, pattern) for pattern in patterns):
        return None
    if is_other_algorithm_image(image):
        return (
            f"image {image!r} is AWS's algorithm {name}, whose program is not public: of AWS's "
            "algorithms only XGBoost runs here. Run this pipeline on AWS"
        )
    return (
        f"image {image!r} is not known to this emulator, which runs jobs with this machine's "
        f"Python and knows AWS's PyTorch, Hugging Face, scikit-learn and XGBoost images. If this "
        f"machine's Python has what the image has, set {VARIABLE} to a pattern for it, e.g. "
        f"'*/{name}:*', and start the emulator again"
    )
