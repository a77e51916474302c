"""``python sklearn_model.py SOCKET``: replaces ``serve`` of AWS's scikit-learn images.

The defaults are those of github.com/aws/sagemaker-scikit-learn-container (Apache-2.0),
``src/sagemaker_sklearn_container/serving.py``.
"""

from typing import Any

import numpy as np
import script_mode  # type: ignore[import-not-found]
from sagemaker_containers.beta.framework import content_types, encoders  # type: ignore[import-not-found]


def default_input_fn(input_data: Any, content_type: str) -> np.ndarray:
    """Decode a request body into an array: float32 for CSV and JSON, the stored dtype for NPY."""
    array = encoders.decode(input_data, content_type)
    return array.astype(np.float32) if content_type in content_types.UTF8_TYPES else array


def default_predict_fn(input_data: Any, model: Any) -> Any:
    """Return the result of the model's own ``predict``."""
    return model.predict(input_data)


if __name__ == "__main__":
    script_mode.serve_user_module(default_input_fn, default_predict_fn)
