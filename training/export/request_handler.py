"""The trained model as a function that answers requests: for endpoints and batch scoring.

Requests and answers are JSON objects; the workload defines their content.
"""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from training.export.artifact import open_artifact
from training.workloads import Workload
from trainyard.common.errors import DataError

WARM = 3
"""Requests that warm a model up: some of a process's first ones are slow, not the first alone."""
PIXEL = b64encode(
    b"P6 1 1 255 \0\0\0"  # the smallest image that every decoder reads
).decode()
PLACEHOLDERS = {"text": "warm up", "number": 0.0, "timestamp": "1970-01-01", "bytes": PIXEL}
"""Kind of a column → a value of a request that warms up."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model that is ready to answer requests."""

    workload: Workload
    model: nn.Module
    """The model in evaluation mode, on the device that it runs on."""

    def answer(self, request: Any) -> dict[str, Any]:
        """Answer one request.

        Raises:
            DataError: the request is not a JSON object, or the workload does not understand it.
        """
        [answer] = self.answers([request])
        if isinstance(answer, Exception):
            raise answer
        return answer

    def warm(self) -> None:
        """Answer requests that nobody asked, so that the first that somebody asks takes no longer
        than others: modules are imported, kernels chosen, memory allocated. Never fails: what the
        model cannot answer stays for its first request.
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
        except Exception:  # noqa: BLE001 - a workload of one's own need not know a record
            return
        for _ in range(WARM):
            self.answers([request])

    def answers(self, requests: Sequence[Any]) -> list[dict[str, Any] | Exception]:
        """Answer several requests together: an exception is the answer to one that has none, a
        DataError if that is the request's fault.

        When some fail, each half is asked alone, and so on: no request costs another its answer.
        """
        try:
            return self._together(requests)
        except Exception as error:  # noqa: BLE001 - whatever it is, the others have to be answered
            if len(requests) < 2:
                return [error] * len(requests)
        half = len(requests) // 2
        return [*self.answers(requests[:half]), *self.answers(requests[half:])]

    @torch.inference_mode()
    def _together(self, requests: Sequence[Any]) -> list[dict[str, Any] | Exception]:
        for request in requests:
            if not isinstance(request, Mapping):
                raise DataError(f"the request is {str(request)[:60]!r}; expected a JSON object")
        if not hasattr(self.workload, "answers"):
            name = type(self.workload).__module__.rpartition(".")[0]
            raise DataError(f"workload {name} answers no requests: give its Workload an answers()")
        return [*self.workload.answers(self.model, requests)]


def open_served(folder: Path, base: Path | None = None) -> ServedModel:
    """Load the artifact in ``folder``, onto the GPU if there is one; ``base``: see
    ``training.export.artifact.open_artifact``.

    Raises:
        DataError: a file of the artifact is missing or damaged.
    """
    workload, model, _ = open_artifact(folder, base)
    return ServedModel(workload, model.to("cuda" if torch.cuda.is_available() else "cpu"))
