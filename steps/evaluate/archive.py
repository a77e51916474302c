"""A model's archive, model.tar.gz, opened; challenger and champion alike."""

import gzip
import json
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from training.artifact import open_artifact
from training.workloads import Workload
from trainyard.common.errors import DataError
from trainyard.common.hashes import file_sha256


@dataclass(frozen=True)
class Trained:
    """A model, and what its archive says of it."""

    workload: Workload
    model: nn.Module
    description: dict[str, Any]
    """Its config.json."""
    artifact: dict[str, Any]
    """``bytes`` and ``sha256`` of the archive as it is registered."""


def open_archive(folder: Path, workload: str | None = None) -> Trained:
    """The model of the folder's model.tar.gz, on the CPU.

    Args:
        workload: the name that its workload must have.

    Raises:
        TrainyardError: there is none, it is damaged, or of another workload.
    """
    archive = _archive_in(folder)
    files = _extract(archive)
    if workload is not None:
        _check_workload(files / "config.json", workload)
    return Trained(*open_artifact(files), _evidence(archive))


def _check_workload(path: Path, expected: str) -> None:
    """Before anything is imported that the archive names."""
    try:
        name = json.loads(path.read_bytes())["workload"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: is missing or damaged: {error!r}") from None
    if name != expected:
        raise DataError(f"it is of workload {name!r}; expected {expected!r}")


def _archive_in(folder: Path) -> Path:
    archive = folder / "model.tar.gz"
    if not archive.is_file():
        raise DataError(f"{archive}: is missing; the train step left no model")
    return archive


def _evidence(archive: Path) -> dict[str, Any]:
    return {"bytes": archive.stat().st_size, "sha256": file_sha256(archive)}


def _extract(archive: Path) -> Path:
    """The folder with the model's files, beside the archive."""
    folder = archive.parent / "model"
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise DataError(f"{archive}: cannot be unpacked: {error}") from None
    return folder
