"""The trained model as something that answers one request: behind an endpoint, and for its latency.

A request and an answer are JSON objects; what stands in them is the workload's business.
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
    """A model that is ready to answer."""

    workload: Workload
    model: nn.Module
    """In evaluation mode, on the device that it answers from."""

    def answer(self, request: Any) -> dict[str, Any]:
        """The answer to one request.

        Raises:
            DataError: the request is no JSON object, or not one that the workload understands.
        """
        if not isinstance(request, Mapping):
            raise DataError(f"the request is {str(request)[:60]!r}; expected a JSON object")
        if not hasattr(self.workload, "answer"):
            name = type(self.workload).__module__.rpartition(".")[0]
            raise DataError(f"workload {name} answers no requests: give its Workload an answer()")
        with torch.inference_mode():
            return self.workload.answer(self.model, request)


def open_served(folder: Path) -> Served:
    """The artifact in ``folder``, on the GPU where there is one.

    Raises:
        DataError: a file of the artifact is missing or damaged.
    """
    workload, model, _ = open_artifact(folder)
    return Served(workload, model.to("cuda" if torch.cuda.is_available() else "cpu"))
