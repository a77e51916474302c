"""Fakes of libraries that only AWS's images have, after their documentation."""

import sys
from pathlib import Path


def install() -> None:
    """Let this process import them."""
    import torch

    folder = Path(__file__).parent
    sys.path.insert(0, str(folder))
    torch.__path__.append(str(folder / "smp"))  # SMP's images have sagemaker inside of torch
