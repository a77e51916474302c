"""Replacement for the package that users' scripts import in AWS's XGBoost images.

It behaves as github.com/aws/sagemaker-xgboost-container (Apache-2.0) and has only the modules that
scripts use: ``data_utils`` and ``distributed`` for training, ``encoder`` for ``input_fn``, and
``training`` for the toolkit. Its parent folder is on PYTHONPATH in jobs and servers of those
images.
"""

import importlib.util
import sys
import types
from pathlib import Path


def _lacks_algorithms() -> bool:
    """Return whether this interpreter cannot import ``trainyard.emulator.algorithms``."""
    try:
        return importlib.util.find_spec("trainyard.emulator.algorithms") is None
    except ModuleNotFoundError:
        return True


if _lacks_algorithms():
    _package = types.ModuleType("trainyard")
    _package.__path__ = [str(Path(__file__).parents[4])]
    sys.modules["trainyard"] = _package
