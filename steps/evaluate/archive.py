"""A model that was given as an archive, or file by file, opened; challenger and champion alike."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from steps.evaluate.document import Artifact
from steps.evaluate.unpacked import evidence, files_of
from training import base_model
from training.artifact import open_artifact
from training.workloads import Workload
from trainyard.common.errors import DataError


@dataclass(frozen=True)
class Source:
    """Where a model is opened from: paths and words, which another process understands, too."""

    folder: Path
    """Its files, unpacked; or a base in any form, where ``uri`` says what it is."""
    base: Path | None = None
    """Folder with the model that its adapters belong to, where the files hold adapters alone."""
    uri: str | None = None
    """Of the base that a training began with."""

    def model(self, workload: Workload, name: str) -> nn.Module:
        """The model in evaluation mode, on the CPU; ``name`` is the workload's.

        Raises:
            DataError: it is damaged, or another workload's.
        """
        if self.uri is None:
            return open_artifact(self.folder, self.base)[1]
        model = workload.model()
        base_model.fill(model, workload, name, self.folder, self.uri)
        return model.eval()


@dataclass(frozen=True)
class Trained:
    """A model, and what its files say of it."""

    workload: Workload
    model: nn.Module
    description: dict[str, Any]
    """Its config.json."""
    artifact: Artifact
    """The files as they are registered."""
    source: Source


def open_archive(folder: Path, workload: str | None = None, base: Path | None = None) -> Trained:
    """The folder's model, on the CPU.

    Args:
        workload: the name that its workload must have.
        base: folder with the model that its adapters belong to, where it holds adapters alone.

    Raises:
        TrainyardError: there is none, it is damaged, or of another workload.
    """
    files = files_of(folder, folder / "model")
    if workload is not None:
        _check_workload(files / "config.json", workload)
    return Trained(*open_artifact(files, base), evidence(folder), Source(files, base))


def _check_workload(path: Path, expected: str) -> None:
    """Before anything is imported that the archive names."""
    try:
        name = json.loads(path.read_bytes())["workload"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: is missing or damaged: {error!r}") from None
    if name != expected:
        raise DataError(f"it is of workload {name!r}; expected {expected!r}")
