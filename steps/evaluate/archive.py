"""A model's archive, model.tar.gz, opened; challenger and champion alike."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from steps.evaluate.document import Artifact
from steps.evaluate.unpacked import archive_in, evidence, unpack
from training.artifact import open_artifact
from training.workloads import Workload
from trainyard.common.errors import DataError


@dataclass(frozen=True)
class Trained:
    """A model, and what its archive says of it."""

    workload: Workload
    model: nn.Module
    description: dict[str, Any]
    """Its config.json."""
    artifact: Artifact
    """The archive as it is registered."""


def open_archive(folder: Path, workload: str | None = None, base: Path | None = None) -> Trained:
    """The model of the folder's model.tar.gz, on the CPU.

    Args:
        workload: the name that its workload must have.
        base: folder with the model that its adapters belong to, where it holds adapters alone.

    Raises:
        TrainyardError: there is none, it is damaged, or of another workload.
    """
    archive = archive_in(folder)
    files = archive.parent / "model"
    unpack(archive, files)
    if workload is not None:
        _check_workload(files / "config.json", workload)
    return Trained(*open_artifact(files, base), evidence(archive))


def _check_workload(path: Path, expected: str) -> None:
    """Before anything is imported that the archive names."""
    try:
        name = json.loads(path.read_bytes())["workload"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: is missing or damaged: {error!r}") from None
    if name != expected:
        raise DataError(f"it is of workload {name!r}; expected {expected!r}")
