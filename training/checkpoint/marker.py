"""The marker of a complete checkpoint, which is its last file; and how checkpoints are found.

SageMaker restores whatever is in S3, so a folder of checkpoints may contain anything: what does not
look exactly like one of our checkpoints is ignored.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from training.checkpoint.block_hashes import BLOCK, HASH, build_hashes_path
from training.checkpoint.tensor_table import Table
from training.identity import Parts
from trainyard.common.hashes import hash_json

# The lineage records how a checkpoint, and finally the model, was really trained, as a sequence of
# stretches (``Stretch``).
#
# An interrupted training run continues in another process, perhaps with other ranks. Its earlier
# stretches are then copied from the resumed checkpoint, never derived from the present settings.


class Stretch(BaseModel):
    """Consecutive optimizer steps trained under the same conditions."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    since: int = Field(ge=0)
    """Number of steps before this stretch."""

    identity: str
    code_sha256: str
    data: str | None
    strategy: str
    world_size: int


class Lineage(BaseModel):
    """How the weights were made: the parts of this training run's identity, and all stretches so
    far.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    parts: Parts
    stretches: tuple[Stretch, ...]

    @classmethod
    def begin(cls, parts: Parts, strategy: str, world_size: int) -> "Lineage":
        """Return the lineage of a training run that has not made any step."""
        stretch = Stretch(
            since=0,
            identity=parts.name,
            code_sha256=parts.code_sha256,
            data=parts.data,
            strategy=strategy,
            world_size=world_size,
        )
        return cls(parts=parts, stretches=(stretch,))

    def resume_at(self, step: int, before: "Lineage") -> "Lineage":
        """Return this run's lineage after resuming, at ``step``, a checkpoint with lineage
        ``before``.
        """
        latest = self.stretches[-1].model_copy(update={"since": step})
        earlier = tuple(stretch for stretch in before.stretches if stretch.since < step)
        # A resume under the same conditions continues the last stretch instead of beginning one.
        if earlier and earlier[-1].model_copy(update={"since": step}) == latest:
            return Lineage(parts=self.parts, stretches=earlier)
        return Lineage(parts=self.parts, stretches=(*earlier, latest))

    def as_json(self) -> Mapping[str, Any]:
        """Return the lineage as the model's description records it."""
        return {"identity": self.parts.name, **self.model_dump(mode="json")}


NAME = "complete.json"
PREFIX = "step-"
FORMAT = 2


class CheckpointFile(BaseModel):
    """A shard: one rank's file of a checkpoint."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bytes: int = Field(ge=0)
    sha256: str
    """SHA-256 of the file with its block hashes (``training.checkpoint.tensor_table``)."""


class Marker(BaseModel):
    """Content of complete.json."""

    model_config = ConfigDict(frozen=True)

    format: int = FORMAT

    step: int = Field(ge=0)
    """Optimizer steps made before the checkpoint."""

    validation_loss: FiniteFloat | None = None
    """Validation loss at this step, if it was measured."""

    files: dict[str, CheckpointFile]
    """Mapping of each shard's name to its size and hash."""

    lineage: Lineage | None = None
    """Lineage of the weights; None if it was not given."""

    table: Table = Table(layouts=(), tensors={})
    """Where each part of a tensor is stored; a file's number is its index in the sorted names."""

    sha256: str | None = None
    """Hash of ``files`` and ``table``: with a damaged table wrong bytes would be read."""

    def seal(self) -> "Marker":
        """Return a copy with the hash of ``files`` and ``table`` set."""
        return self.model_copy(update={"sha256": self._hash()})

    @property
    def is_sealed(self) -> bool:
        """True if ``files`` and ``table`` are as they were written."""
        return self.sha256 == self._hash()

    def _hash(self) -> str:
        """Return the hash of ``files`` and ``table``."""
        return hash_json(self.model_dump(mode="json", include={"files", "table"}))

    @property
    def names(self) -> list[str]:
        """Names of the shards, in the order of their numbers."""
        return sorted(self.files)


class DamagedMarkerError(ValueError):
    """A marker is unreadable, or not as it was written. The message says why."""


def build_folder_path(folder: Path, step: int) -> Path:
    """Return the path of the checkpoint of step ``step`` in ``folder``."""
    return folder / f"{PREFIX}{step:08d}"


def list_steps(folder: Path, name: str = NAME) -> list[int]:
    """Return the steps of the checkpoints in ``folder`` that have a marker, in ascending order.

    Args:
        name: name of the marker's file.
    """
    candidates = _parse_steps(path.parent for path in folder.glob(f"{PREFIX}*/{name}"))
    # The glob also finds a folder whose number is written differently, such as step-5.
    return [step for step in candidates if (build_folder_path(folder, step) / name).is_file()]


def list_unfinished_steps(folder: Path) -> list[int]:
    """Return the steps of the checkpoints in ``folder`` that have shards, even partial, but no
    marker.
    """
    candidates = _parse_steps(path.parent for path in folder.glob(f"{PREFIX}*/*shard-*"))
    return [step for step in candidates if not (build_folder_path(folder, step) / NAME).is_file()]


def _parse_steps(folders: Iterator[Path]) -> list[int]:
    """Return the steps in the folders' names, ascending; ignore names without a number."""
    numbers = (path.name.removeprefix(PREFIX) for path in folders)
    # ``int`` alone would also accept signs, spaces and the digits of other scripts.
    values = {int(number) for number in numbers if number.isascii() and number.isdecimal()}
    return sorted(values)


def parse_marker(content: bytes) -> Marker:
    """Parse and check a marker's content.

    Raises:
        DamagedMarkerError: the content is not a marker, or not as it was written.
    """
    # Check the format first: otherwise another version's marker would fail at some field below,
    # with a message that does not mention the version.
    try:
        document = json.loads(content)
    except ValueError:
        document = None  # the model's validation says what is wrong with it
    if isinstance(document, dict) and (form := document.get("format", 1)) != FORMAT:
        raise DamagedMarkerError(f"{NAME} has format {form}; this version reads format {FORMAT}")
    try:
        marker = Marker.model_validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise DamagedMarkerError(
            f"{NAME} is damaged: {field + ': ' if field else ''}{first['msg']}"
        ) from None
    # A slash would lead out of the checkpoint's folder.
    if not all("/" not in name and name.endswith(".safetensors") for name in marker.files):
        raise DamagedMarkerError(f"{NAME} names a file that is not a shard")
    if not marker.is_sealed:
        raise DamagedMarkerError(
            f"{NAME} was changed since it was written: the hash of its list of files does not match"
        )
    return marker


def load_marker(folder: Path, *, check_name: bool = True) -> Marker:
    """Read and check the marker in a checkpoint's folder.

    Args:
        check_name: whether the folder's name has to be that of the marker's step.

    Raises:
        DamagedMarkerError: the marker is missing, or not as it was written.
    """
    try:
        content = (folder / NAME).read_bytes()
    except OSError as error:
        raise DamagedMarkerError(f"{NAME} cannot be read: {error.strerror}") from None
    marker = parse_marker(content)
    if check_name and build_folder_path(folder.parent, marker.step) != folder:
        raise DamagedMarkerError(f"{NAME} is of step {marker.step}")
    return marker


def load_valid_marker(folder: Path, *, check_name: bool = True) -> Marker | None:
    """Return the marker as ``load_marker`` does, or None if it is missing or damaged."""
    try:
        return load_marker(folder, check_name=check_name)
    except DamagedMarkerError:
        return None


def explain_damage(folder: Path, name: str, entry: CheckpointFile) -> str | None:
    """Return what is wrong with a shard, or None if it and its hashes have the recorded sizes."""
    path = folder / name
    blocks = -(-entry.bytes // BLOCK)
    for file_path, size in ((path, entry.bytes), (build_hashes_path(path), blocks * HASH)):
        if not file_path.is_file():
            return (
                f"{file_path.name} is not a file"
                if file_path.exists()
                else f"{file_path.name} is missing"
            )
        if (actual_size := file_path.stat().st_size) != size:
            return f"{file_path.name} has {actual_size} bytes, expected {size}"
    return None


def list_unlisted_files(folder: Path, marker: Marker) -> list[str]:
    """Return the names of shards in the folder that do not belong to the checkpoint."""
    return sorted({path.name for path in folder.glob("*.safetensors")} - {*marker.files})


def iter_foreign_run_messages(own_folder: Path, parts: Parts) -> Iterator[str]:
    """Yield a message for each other training run with checkpoints next to ``own_folder``."""
    for folder in sorted(
        path for path in own_folder.parent.glob("*") if path != own_folder and path.is_dir()
    ):
        markers = [
            load_valid_marker(build_folder_path(folder, step)) for step in list_steps(folder)
        ]
        for newest in [marker.lineage for marker in markers if marker and marker.lineage][-1:]:
            differs = "; ".join(parts.describe_differences(newest.parts).values())
            yield (
                f"{folder}: contains checkpoints of another training: {differs}; they are not "
                f"resumed, and this training begins in {own_folder}"
            )
