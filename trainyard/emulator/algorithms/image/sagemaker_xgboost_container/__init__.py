"""What users' scripts import in AWS's XGBoost images, under the names it has there.

By github.com/aws/sagemaker-xgboost-container (Apache-2.0), of which only these modules are there
that scripts use: ``data_utils`` and ``distributed`` for training, ``encoder`` for ``input_fn``. The
folder around it stands on the path of jobs and servers of those images.
"""

import importlib.util
import sys
import types
from pathlib import Path


def _is_missing() -> bool:
    """The job's interpreter need not have it, nor a ``trainyard`` of a part of it."""
    try:
        return importlib.util.find_spec("trainyard.emulator.algorithms") is None
    except ModuleNotFoundError:
        return True


if _is_missing():
    _package = types.ModuleType("trainyard")
    _package.__path__ = [str(Path(__file__).parents[4])]
    sys.modules["trainyard"] = _package
