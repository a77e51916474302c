"""The functions that AWS's PyTorch inference toolkit calls; shipped as ``code/inference.py``.

The toolkit puts ``/opt/ml/model/code`` on Python's path, imports the module that
``SAGEMAKER_PROGRAM`` names, and answers ``/invocations`` with its functions
(github.com/aws/sagemaker-pytorch-inference-toolkit, "Model serving").

TorchServe gathers requests into batches where SAGEMAKER_TS_BATCH_SIZE asks for them, but the
toolkit then calls the functions for one request after the other, with the content type of the
first (``Transformer.transform`` of sagemaker-inference 1.10.1). So once the model is loaded,
``transform`` replaces that method: one pass of the model answers the batch.
"""

import json
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from training.export.request_handler import Served, open_served
from trainyard.common.errors import TrainyardError

JSON = "application/json"


def model_fn(model_dir: str) -> Served:
    """Load the artifact, once per process, and warm it up: a fleet's first requests would go over
    the limit of a latency that a deployment watches.
    """
    from sagemaker_inference.transformer import Transformer  # the image has it

    served = open_served(Path(model_dir))
    served.warm()
    Transformer.transform = lambda _, data, context: transform(served, data, context)
    return served


def transform(served: Served, data: Sequence[Mapping[str, Any]], context: Any) -> list[str]:
    """Answer a batch of requests; ``context`` is TorchServe's, and takes the status of each."""
    pairs = zip(data, context.request_processor, strict=True)
    asked = [_read(one.get("body") or b"", each.get_request_properties()) for one, each in pairs]
    answers = iter(served.answers([one for one in asked if not isinstance(one, Exception)]))
    found = [one if isinstance(one, Exception) else next(answers) for one in asked]
    return [_say(one, context, index) for index, one in enumerate(found)]


def _read(body: bytes, headers: Mapping[str, Any]) -> Any:
    """Return a request, or the exception that refuses it."""
    from sagemaker_inference import errors, utils

    try:
        return input_fn(body, utils.retrieve_content_type_header(headers) or "")
    except errors.BaseInferenceToolkitError as refused:
        return refused


def _say(found: Any, context: Any, index: int) -> str:
    """Return the body of an answer, after its status and type were set."""
    from sagemaker_inference import utils

    context.set_response_content_type(index, JSON)
    if not isinstance(found, Exception):
        return output_fn(found, JSON)
    reason = getattr(found, "message", str(found))
    status = getattr(found, "status_code", 400 if isinstance(found, TrainyardError) else 500)
    if status == 500:
        traceback.print_exception(found)
    context.set_response_status(status, utils.remove_crlf(reason), index)
    return reason


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
