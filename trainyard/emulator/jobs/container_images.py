"""Which container images this machine's Python stands in for.

An image is a file system that a laptop without Docker does not have. AWS's images for PyTorch,
scikit-learn and XGBoost hold Python with those libraries, and so does the interpreter that runs the
emulator; any other image is refused rather than guessed, unless the user maps it.
"""

import fnmatch
import os
from collections.abc import Mapping
from pathlib import Path

from trainyard.emulator.algorithms.xgboost.facts import is_xgboost, repository

PACKAGES = Path(__file__).parent.parent / "algorithms/image"
"""What stands in for packages of AWS's own in its XGBoost and scikit-learn images."""
VARIABLE = "TRAINYARD_EMULATOR_IMAGES"
"""More patterns (fnmatch, on the image's URI), separated by commas or spaces."""

KNOWN = (
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


def own_packages(image: str, environment: Mapping[str, str]) -> dict[str, str]:
    """``environment``'s PYTHONPATH with what users' scripts import from ``image`` alone."""
    if not is_xgboost(image) and repository(image) != "sagemaker-scikit-learn":
        return {}
    parts = [environment.get("PYTHONPATH", ""), str(PACKAGES)]
    return {"PYTHONPATH": os.pathsep.join(filter(None, parts))}


def refusal(image: str) -> str | None:
    """Why ``image`` cannot run here, and what to do; None when it can."""
    if not isinstance(image, str):  # a definition's may be anything
        return f"image {image!r} is no text"
    name = repository(image)
    if is_xgboost(image) or any(fnmatch.fnmatchcase(name, pattern) for pattern in KNOWN):
        return None
    patterns = os.environ.get(VARIABLE, "").replace(",", " ").split()
    if any(fnmatch.fnmatchcase(image, pattern) for pattern in patterns):
        return None
    return (
        f"image {image!r} is not known to this emulator, which runs jobs with this machine's "
        f"Python and knows AWS's PyTorch, Hugging Face, scikit-learn and XGBoost images. If this "
        f"machine's Python has what the image has, set {VARIABLE} to a pattern for it, e.g. "
        f"'*/{name}:*', and start the emulator again"
    )
