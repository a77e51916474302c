"""The trained model as a function that answers one request: for endpoints and latency measurements.

Requests and answers are JSON objects; the workload defines their content.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from training.export.artifact import open_artifact
from training.workloads import Workload
from trainyard.common.errors import DataError


@dataclass(frozen=True, slots=True)
class Served:
    """A model that is ready to answer requests."""

    workload: Workload
    model: nn.Module
    """The model in evaluation mode, on the device that it runs on."""

    def answer(self, request: Any) -> dict[str, Any]:
        """Answer one request.

        Raises:
            DataError: the request is not a JSON object, or the workload does not understand it.
        """
        if not isinstance(request, Mapping):
            raise DataError(f"the request is {str(request)[:60]!r}; expected a JSON object")
        if not hasattr(self.workload, "answer"):
            name = type(self.workload).__module__.rpartition(".")[0]
            raise DataError(f"workload {name} answers no requests: give its Workload an answer()")
        with torch.inference_mode():
            return self.workload.answer(self.model, request)


def open_served(folder: Path) -> Served:
    """Load the artifact in ``folder``, onto the GPU if there is one.

    Raises:
        DataError: a file of the artifact is missing or damaged.
    """
    workload, model, _ = open_artifact(folder)
    return Served(workload, model.to("cuda" if torch.cuda.is_available() else "cpu"))
