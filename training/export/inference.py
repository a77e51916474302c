"""The functions that AWS's PyTorch inference toolkit calls; shipped as ``code/inference.py``.

The toolkit puts ``/opt/ml/model/code`` on Python's path, imports the module that
``SAGEMAKER_PROGRAM`` names, and handles ``/invocations`` with its functions
(github.com/aws/sagemaker-pytorch-inference-toolkit, "Model serving").

If SAGEMAKER_TS_BATCH_SIZE is set, TorchServe gathers requests into batches, but the toolkit then
calls the functions for one request after the other, with the content type of the first
(``Transformer.transform`` of sagemaker-inference 1.10.1). So once the model is loaded,
``transform`` replaces that method: one pass of the model handles the whole batch.
"""

import json
import traceback
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import nn

from training.export.artifact import load_artifact
from training.workloads import Workload
from trainyard.common.errors import DataError, TrainyardError

# The trained model as a function that responds to requests: for endpoints and batch scoring.
#
# Requests and responses are JSON objects; the workload defines their content.

WARM = 3
"""Number of requests that warm a model up: several, because not only a process's first one is
slow.
"""
# The smallest image that every decoder reads: one black pixel in PPM format.
PIXEL = b64encode(b"P6 1 1 255 \0\0\0").decode()
PLACEHOLDERS = {"text": "warm up", "number": 0.0, "timestamp": "1970-01-01", "bytes": PIXEL}
"""Mapping of a column's kind to the value that it has in a warm-up request."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model that is ready to respond to requests."""

    workload: Workload
    model: nn.Module
    """The model in evaluation mode, on the device that it runs on."""

    def answer(self, request: Any) -> dict[str, Any]:
        """Return the response to one request.

        Raises:
            DataError: the request is not a JSON object, or the workload does not understand it.
        """
        [answer] = self.answer_all([request])
        if isinstance(answer, Exception):
            raise answer
        return answer

    def warm_up(self) -> None:
        """Run a few made-up requests, so that the first real one is as fast as later ones.

        They import modules, choose kernels and allocate memory. This never fails: if the model
        cannot handle such a request, the first real one is slow.
        """
        try:
            columns = self.workload.request_columns
            record = {name: PLACEHOLDERS.get(column.kind, "") for name, column in columns.items()}
            lists = {
                name: column.length or 0
                for name, column in columns.items()
                if column.kind == "list"
            }
            record |= {name: [0.0] * length for name, length in lists.items()}
            request = self.workload.request(record)
        except Exception:  # noqa: BLE001 - a custom workload may not accept such a record
            return
        for _ in range(WARM):
            self.answer_all([request])

    def answer_all(self, requests: Sequence[Any]) -> list[dict[str, Any] | Exception]:
        """Return the responses to several requests, computed together.

        The response to a request that failed is its exception, a DataError if the request is wrong.
        When some fail, each half is computed alone, and so on, so that no request prevents the
        response to another.
        """
        try:
            return self._answer_together(requests)
        except Exception as error:  # noqa: BLE001 - whatever failed, the others have to be answered
            if len(requests) < 2:
                return [error] * len(requests)
        half = len(requests) // 2
        return [*self.answer_all(requests[:half]), *self.answer_all(requests[half:])]

    @torch.inference_mode()
    def _answer_together(self, requests: Sequence[Any]) -> list[dict[str, Any] | Exception]:
        """Check the requests, and return their responses, computed in one pass of the model."""
        for request in requests:
            if not isinstance(request, Mapping):
                raise DataError(f"the request is {str(request)[:60]!r}; expected a JSON object")
        if not hasattr(self.workload, "answers"):
            name = type(self.workload).__module__.rpartition(".")[0]
            raise DataError(f"workload {name} cannot answer requests: implement Workload.answers()")
        return [*self.workload.answers(self.model, requests)]


def load_served_model(folder: Path, base: Path | None = None) -> ServedModel:
    """Load the artifact in ``folder``, onto the GPU if there is one.

    Args:
        base: see ``training.export.artifact.load_artifact``.

    Raises:
        DataError: a file of the artifact is missing or damaged.
    """
    workload, model, _ = load_artifact(folder, base)
    return ServedModel(workload, model.to("cuda" if torch.cuda.is_available() else "cpu"))


JSON = "application/json"


def model_fn(model_dir: str) -> ServedModel:
    """Load the artifact, once per process, and warm it up.

    Without the warm-up, the first requests of a fleet would exceed the latency limit that a
    deployment watches.
    """
    from sagemaker_inference.transformer import Transformer  # part of the image

    served_model = load_served_model(Path(model_dir))
    served_model.warm_up()
    Transformer.transform = lambda _, data, context: transform(served_model, data, context)
    return served_model


def transform(
    served_model: ServedModel, data: Sequence[Mapping[str, Any]], context: Any
) -> list[str]:
    """Return the responses to a batch of requests.

    Args:
        context: TorchServe's context, in which the status of each response is set.
    """
    pairs = zip(data, context.request_processor, strict=True)
    requests = [
        _read_request(item.get("body") or b"", processor.get_request_properties())
        for item, processor in pairs
    ]
    # Rejected requests are not passed to the model, and keep their place among the responses.
    answers = iter(
        served_model.answer_all(
            [request for request in requests if not isinstance(request, Exception)]
        )
    )
    outcomes = [
        request if isinstance(request, Exception) else next(answers) for request in requests
    ]
    return [_format_answer(outcome, context, index) for index, outcome in enumerate(outcomes)]


def _read_request(body: bytes, headers: Mapping[str, Any]) -> Any:
    """Return a request, or the exception that rejects it."""
    from sagemaker_inference import errors, utils

    try:
        return input_fn(body, utils.retrieve_content_type_header(headers) or "")
    except errors.BaseInferenceToolkitError as error:
        return error


def _format_answer(outcome: Any, context: Any, index: int) -> str:
    """Set the status and type of a response, and return its body."""
    from sagemaker_inference import utils

    context.set_response_content_type(index, JSON)
    if not isinstance(outcome, Exception):
        return output_fn(outcome, JSON)
    reason = getattr(outcome, "message", str(outcome))
    status = getattr(outcome, "status_code", 400 if isinstance(outcome, TrainyardError) else 500)
    if status == 500:
        traceback.print_exception(outcome)
    context.set_response_status(status, utils.remove_crlf(reason), index)
    return reason


def input_fn(body: str | bytes, content_type: str) -> Any:
    """Decode a request's body; raise the toolkit's error if it is not JSON."""
    if content_type.partition(";")[0].strip() != JSON:
        _make_toolkit_error(415, f"Content-Type is {content_type}; expected {JSON}")
    try:
        return json.loads(body)
    except ValueError as error:
        _make_toolkit_error(400, f"the request is not JSON: {error}")


def predict_fn(request: Any, served_model: ServedModel) -> dict[str, Any]:
    """Return the response to a request; one that the model cannot handle is a client error
    (400).
    """
    try:
        return served_model.answer(request)
    except TrainyardError as error:
        _make_toolkit_error(400, str(error))


def output_fn(answer: dict[str, Any], accept: str) -> str:
    """Return the response as JSON, whatever ``accept`` says: no other format is supported."""
    return json.dumps(answer, allow_nan=False)


def _make_toolkit_error(status: int, reason: str) -> NoReturn:
    """Raise the toolkit's own error, which sets the HTTP status; any other error becomes 500."""
    from sagemaker_inference.errors import BaseInferenceToolkitError  # part of the image

    raise BaseInferenceToolkitError(status, reason, reason)
