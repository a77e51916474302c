"""Which container images this machine's Python stands in for.

An image is a file system that a laptop without Docker does not have. AWS's images for PyTorch,
scikit-learn and XGBoost hold Python with those libraries, and so does the interpreter that runs the
emulator; any other image is refused rather than guessed, unless the user maps it.
"""

import fnmatch
import os
from collections.abc import Mapping
from pathlib import Path

PACKAGES = Path(__file__).parent.parent / "algorithms/image"
"""What stands in for packages of AWS's own that only the images have."""
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


_FIRST_XGBOOST = frozenset(
    "104374241257 106583098589 226302683700 237065988967 249704162688 257386234256 272398656194 "
    "286214385809 306986355934 387376663083 390948362332 433757028032 455444449433 469771592824 "
    "475088953585 490574956308 501404015308 544295431143 628508329040 632365934929 644912444149 "
    "669576153137 680994064768 685385470294 749696950732 765400339828 811284229777 813361260812 "
    "825641698319 855470959533 867004704886 951798379941 991648021394".split()
)
"""AWS's accounts with the first XGBoost image, whose repository is plainly ``xgboost``: SDK 3.27,
sagemaker/core/image_uri_config/xgboost.json."""


def is_xgboost(image: str) -> bool:
    """Whether it is one of AWS's images of the XGBoost algorithm."""
    name = repository(image)
    first = name == "xgboost" and image.partition(".dkr.ecr.")[0] in _FIRST_XGBOOST
    return first or name == "sagemaker-xgboost"


def own_packages(image: str, environment: Mapping[str, str]) -> dict[str, str]:
    """``environment``'s PYTHONPATH with what users' scripts import from ``image`` alone."""
    if not is_xgboost(image):
        return {}
    parts = [environment.get("PYTHONPATH", ""), str(PACKAGES)]
    return {"PYTHONPATH": os.pathsep.join(filter(None, parts))}


def repository(image: str) -> str:
    """What stands between the last slash and the tag or digest."""
    return image.rsplit("@", 1)[0].rsplit("/", 1)[-1].split(":")[0]


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
