"""Which container images this machine's Python stands in for.

An image is a file system that a laptop without Docker does not have. AWS's images for PyTorch
and scikit-learn hold Python with those libraries, and so does the interpreter that runs the
emulator; any other image is refused rather than guessed, unless the user maps it.
"""

import fnmatch
import os

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
    "sagemaker-base-python*",
    "sagemaker-distribution*",
)


def refusal(image: str) -> str | None:
    """Why ``image`` cannot run here, and what to do; None when it can."""
    repository = image.rsplit("@", 1)[0].rsplit("/", 1)[-1].split(":")[0]
    if any(fnmatch.fnmatchcase(repository, pattern) for pattern in KNOWN):
        return None
    patterns = os.environ.get(VARIABLE, "").replace(",", " ").split()
    if any(fnmatch.fnmatchcase(image, pattern) for pattern in patterns):
        return None
    return (
        f"image {image!r} is not known to this emulator, which runs jobs with this machine's "
        f"Python and knows AWS's PyTorch, Hugging Face and scikit-learn images. If this machine's "
        f"Python has what the image has, set {VARIABLE} to a pattern for it, e.g. "
        f"'*/{repository}:*', and start the emulator again"
    )
