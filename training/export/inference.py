"""The functions that AWS's PyTorch inference toolkit calls; shipped as ``code/inference.py``.

The toolkit puts ``/opt/ml/model/code`` on Python's path, imports the module that
``SAGEMAKER_PROGRAM`` names, and answers ``/invocations`` with these four functions
(github.com/aws/sagemaker-pytorch-inference-toolkit, "Model serving").
"""

import json
from pathlib import Path
from typing import Any, NoReturn

from training.export.request_handler import Served, open_served
from trainyard.common.errors import TrainyardError

JSON = "application/json"


def model_fn(model_dir: str) -> Served:
    """Load the artifact, once per process."""
    return open_served(Path(model_dir))


def input_fn(body: str | bytes, content_type: str) -> Any:
    """Decode a request's body."""
    if content_type.partition(";")[0].strip() != JSON:
        _refuse(415, f"Content-Type is {content_type}; expected {JSON}")
    try:
        return json.loads(body)
    except ValueError as error:
        _refuse(400, f"the request is not JSON: {error}")


def predict_fn(request: Any, served: Served) -> dict[str, Any]:
    """Answer a request; one that the model cannot answer is the client's fault."""
    try:
        return served.answer(request)
    except TrainyardError as error:
        _refuse(400, str(error))


def output_fn(answer: dict[str, Any], accept: str) -> str:
    """Return the answer as JSON, whatever ``accept`` asks for: no other form is supported."""
    return json.dumps(answer, allow_nan=False)


def _refuse(status: int, reason: str) -> NoReturn:
    """Raise the toolkit's own error, which becomes the answer's HTTP status; others become 500."""
    from sagemaker_inference.errors import BaseInferenceToolkitError  # the image has it

    raise BaseInferenceToolkitError(status, reason, reason)
