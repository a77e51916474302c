"""Checkpoints that are whole or not there, and the way back to the newest whole one.

    <checkpoints>/<identity>/step-00000500/state.pt        model, optimizer
                                           complete.json   the step and state.pt's hash, last

SageMaker copies the folder to S3 while it grows, in any order, so a marker alone proves nothing:
its hash has to match the file beside it.
"""

import hashlib
import json
import logging
import os
import shutil
from pathlib import Path
from typing import Any

import torch

from training.config import TrainConfig
from training.data.manifest import write_atomically

log = logging.getLogger(__name__)

# What changes neither the weights nor their order; all else makes another training.
IMMATERIAL = {
    "log_interval",
    "validation_interval",
    "validation_samples",
    "checkpoint_interval",
    "keep_checkpoints",
    "collective_timeout_seconds",
    "strategy",
}


def identity(config: TrainConfig, workload: str, settings: str, fingerprint: str) -> str:
    """Names a training: only a checkpoint of the same one may be resumed.

    ``max_steps`` belongs to it, since the learning rate's schedule does. The world size and the
    strategy do not: the order of samples and the result do not depend on them.
    """
    material = config.model_dump_json(exclude=IMMATERIAL)
    text = "\n".join((material, workload, settings, fingerprint))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Checkpoints:
    """The checkpoints of one training.

    Args:
        folder: /opt/ml/checkpoints, which SageMaker keeps in step with S3.
        name: the training's ``identity``; others' checkpoints are left alone.
        keep: how many complete checkpoints stay.
    """

    def __init__(self, folder: Path, name: str, keep: int) -> None:
        self._folder, self._keep = folder / name, keep

    def save(self, step: int, state: dict[str, Any]) -> None:
        """Write the state, then the marker; then delete what is older than the last ``keep``."""
        target = self._folder / f"step-{step:08d}"
        target.mkdir(parents=True, exist_ok=True)
        temporary = target / ".state.pt.tmp"
        with temporary.open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        marker = {"step": step, "sha256": _sha256(temporary)}
        temporary.replace(target / "state.pt")
        write_atomically(target / "complete.json", json.dumps(marker).encode())
        for old in self._complete()[: -self._keep]:
            (old / "complete.json").unlink()  # first: what is half deleted must not look complete
            shutil.rmtree(old)

    def newest(self) -> tuple[int, dict[str, Any]] | None:
        """(step, state) of the newest whole checkpoint; None when there is none."""
        for folder in reversed(self._complete()):
            step = _whole(folder)
            if step is None:
                log.warning("checkpoint %s is torn: not resumed, looking for an older one", folder)
                continue
            return step, torch.load(folder / "state.pt", map_location="cpu", weights_only=True)
        return None

    def _complete(self) -> list[Path]:
        """Folders with a marker, oldest first."""
        return sorted(marker.parent for marker in self._folder.glob("step-*/complete.json"))


def _whole(folder: Path) -> int | None:
    """The checkpoint's step; None when the marker is damaged or is not that of the file."""
    try:
        marker = json.loads((folder / "complete.json").read_bytes())
        whole = marker["sha256"] == _sha256(folder / "state.pt")
        return int(marker["step"]) if whole else None
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
