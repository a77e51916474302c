"""The inputs that a training run's weights depend on, and the identity derived from them. No torch
here.

The pipeline definition names the checkpoints' folder in S3 by it. The job, which also knows the
data and torch version, names its training's folder inside that one. Both call
``hash_relevant_code`` to find which code counts.

The identity excludes world size, sharding, strategy, and whatever else changes only the last digits
(``training.config.IMMATERIAL``). Code is compared byte by byte: even a changed comment
gives another identity, because one cannot tell in general whether a change matters. Of the
installed packages only torch counts.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from training.config import IMMATERIAL, TrainConfig
from training.export import shipped_files
from training.workloads import load_spec
from trainyard.common.hashes import hash_json

JOB = "steps/train/job.py"
MOST_SHOWN = 3  # files that one message lists at most
LATER_PARTS = ("tuning", "mixture", "inputs")
"""Parts that were added later: if such a part is None, the identity is computed without it, so
that it equals that of an older training run.
"""


class Parts(BaseModel):
    """Everything that the weights depend on."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    workload: str
    workload_config: dict[str, Any]
    """The workload's settings, with defaults."""

    settings: dict[str, Any]
    """The fields of TrainConfig that affect the weights."""

    code: dict[str, str]
    """Mapping of file to SHA-256."""

    data: str | None = None
    """Fingerprint of the training split; None if not yet known."""

    torch: str | None = None
    """Version of torch, without the build suffix; None if not yet known."""

    start: dict[str, Any] | None = None
    """Model or checkpoint that the weights start from (``training.weights.starting_weights``);
    None for fresh weights."""

    mixture: list[dict[str, Any]] | None = None
    """Each input's share, and the step from which it holds
    (``training.input_shares.list_identity_shares``); None for data of one input."""

    inputs: dict[str, str] | None = None
    """Mapping of each input of the mixture to its fingerprint; None if not yet known."""

    tuning: dict[str, Any] | None = None
    """The weights that are trained (``training.weights.finetuning.adapters``); None if all are."""

    @property
    def name(self) -> str:
        """The identity as a short hash; only a checkpoint with the same one is resumed
        automatically.
        """
        return hash_json(self.as_json)[:16]

    @property
    def as_json(self) -> dict[str, Any]:
        """The JSON object whose hash is the identity."""
        content = self.model_dump(mode="json")
        absent_parts = {name for name in LATER_PARTS if content[name] is None}
        return {name: value for name, value in content.items() if name not in absent_parts}

    @property
    def code_sha256(self) -> str:
        """One hash of all the code that affects the weights."""
        return hash_json(self.code)

    def describe_differences(self, before: "Parts") -> dict[str, str]:
        """Return a description of each part that differs from another training run's, by part.

        Settings are listed individually.
        """
        current, previous = self._flatten_fields(), before._flatten_fields()
        changes = {
            part: f"{part} {previous.get(part, 'missing')} → {current.get(part, 'missing')}"
            for part in sorted(current.keys() | previous.keys())
            # Compared as JSON, because 1, 1.0 and True are equal in Python.
            if _format_json(current, part) != _format_json(previous, part)
        }
        files = describe_changes(before.code, self.code)
        return changes | ({"code": f"code ({files})"} if files else {})

    def _flatten_fields(self) -> dict[str, Any]:
        nested = {f"workload_config.{name}": v for name, v in self.workload_config.items()}
        nested |= {f"data.{name}": fingerprint for name, fingerprint in (self.inputs or {}).items()}
        names = ("workload", "data", "torch", "start", "tuning", "mixture")
        return self.settings | nested | {name: getattr(self, name) for name in names}


def build_parts(
    config: TrainConfig, workload: str, settings: Mapping[str, Any], files: Mapping[str, bytes]
) -> Parts:
    """Return the identity's parts that are known before the data is read.

    Args:
        settings: the workload's settings, already validated.
        files: content of the files shipped to the training, by name.
    """
    workload_config = load_spec(workload).config.model_validate(settings)
    return Parts(
        workload=workload,
        workload_config=workload_config.model_dump(mode="json"),
        settings=config.model_dump(mode="json", exclude=IMMATERIAL),
        code=hash_relevant_code(files, workload),
    )


def hash_relevant_code(files: Mapping[str, bytes], workload: str) -> dict[str, str]:
    """Return a mapping of each file that the weights depend on to its SHA-256."""
    names = sorted(name for name in files if _affects_weights(name, workload))
    return {name: hashlib.sha256(files[name]).hexdigest() for name in names}


def describe_changes(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Describe which files changed: ``~ training/loop.py, + mine/new.py``; empty if none did."""
    signs = {name: "~" if name in before else "+" for name in now}
    signs |= {name: "-" for name in before if name not in now}
    names = [f"{signs[n]} {n}" for n in sorted(signs) if before.get(n) != now.get(n)]
    more = [f"{len(names) - MOST_SHOWN} more"] if len(names) > MOST_SHOWN else []
    return ", ".join([*names[:MOST_SHOWN], *more])


def _affects_weights(name: str, workload: str) -> bool:
    """Return whether the weights of this workload depend on file ``name``."""
    if shipped_files.is_leftover(name):
        return False
    if shipped_files.is_listed(name, shipped_files.WITHOUT_EFFECT):
        return False
    is_own = "." in workload
    if name.startswith("training/workloads/") and name.count("/") > 2 and not is_own:
        # Trainyard's own workloads do not import each other.
        return name.startswith(f"training/workloads/{workload}/")
    if name.startswith("training/") or name == JOB:
        return True
    return is_own and not name.startswith(shipped_files.TRAINYARD_ROOMS)


def read_code_files(workload: str, job: Path) -> dict[str, bytes]:
    """Return the content of the files that this process trains with, named as in the shipped
    folder.

    Args:
        job: the script that was started.
    """
    checkout = Path(__file__).parent.parent
    files = dict(shipped_files.iter_room_files(checkout, ["training/"])) | dict(
        shipped_files.list_package_files(workload)
    )
    return {name: path.read_bytes() for name, path in (files | {JOB: job}).items()}


def _format_json(values: Mapping[str, Any], name: str) -> str | None:
    return json.dumps(values[name], sort_keys=True) if name in values else None
