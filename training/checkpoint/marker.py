"""The last file of a checkpoint, which marks it as complete; and how its folder is found.

SageMaker brings back from S3 whatever is there, so a folder of checkpoints may hold anything:
what does not look exactly like one of our checkpoints is ignored.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from training.checkpoint.block_hashes import BLOCK, HASH, hashes_path
from training.checkpoint.lineage import Lineage
from training.checkpoint.tensor_table import Table
from training.identity import Parts
from trainyard.common.hashes import json_sha256

NAME = "complete.json"
PREFIX = "step-"
FORMAT = 2


class Written(BaseModel):
    """A file of a checkpoint."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bytes: int = Field(ge=0)
    sha256: str
    """SHA-256 of the file's block hashes (``training.checkpoint.block_hashes``)."""


class Marker(BaseModel):
    """Content of complete.json."""

    model_config = ConfigDict(frozen=True)

    format: int = FORMAT

    step: int = Field(ge=0)
    """Optimizer steps made before the checkpoint."""

    validation_loss: FiniteFloat | None = None
    """Validation loss at this step, if it was measured."""

    files: dict[str, Written]
    """Name of each shard → its size and hash."""

    lineage: Lineage | None = None
    """Lineage of the weights; None if it was not given."""

    table: Table = Table(layouts=(), tensors={})
    """Map from tensors' parts to shards, given as indices among the sorted names."""

    sha256: str | None = None
    """Hash of files and table; a damaged table would lead to reads from wrong places."""

    def sealed(self) -> "Marker":
        """Return a copy with the hash of files and table set."""
        return self.model_copy(update={"sha256": self._hash()})

    @property
    def is_sealed(self) -> bool:
        """True if files and table are as they were written."""
        return self.sha256 == self._hash()

    def _hash(self) -> str:
        return json_sha256(self.model_dump(mode="json", include={"files", "table"}))

    @property
    def names(self) -> list[str]:
        """Names of the shards, in the order of their numbers."""
        return sorted(self.files)


class Damaged(ValueError):
    """A marker is unreadable, or not as it was written."""


def folder_of(folder: Path, step: int) -> Path:
    """Return the path below ``folder`` of the checkpoint of a step."""
    return folder / f"{PREFIX}{step:08d}"


def steps(folder: Path, name: str = NAME) -> list[int]:
    """Return the steps of ``folder``'s checkpoints with a marker, in order, without strays."""
    found = _numbered(path.parent for path in folder.glob(f"{PREFIX}*/{name}"))
    return [step for step in found if (folder_of(folder, step) / name).is_file()]


def unfinished(folder: Path) -> list[int]:
    """Return the steps of the checkpoints in ``folder`` that have shards, even partial, but no
    marker.
    """
    found = _numbered(path.parent for path in folder.glob(f"{PREFIX}*/*shard-*"))
    return [step for step in found if not (folder_of(folder, step) / NAME).is_file()]


def _numbered(folders: Iterator[Path]) -> list[int]:
    numbers = (path.name.removeprefix(PREFIX) for path in folders)
    found = {int(number) for number in numbers if number.isascii() and number.isdecimal()}
    return sorted(found)


def parsed(content: bytes) -> Marker:
    """Parse a marker's content.

    Raises:
        Damaged: it is not a marker, or not as it was written; with the reason.
    """
    _check_form(content)
    try:
        marker = Marker.model_validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise Damaged(f"{NAME} is damaged: {field + ': ' if field else ''}{first['msg']}") from None
    if not all("/" not in name and name.endswith(".safetensors") for name in marker.files):
        raise Damaged(f"{NAME} names a file that is not a shard")
    if not marker.is_sealed:
        raise Damaged(
            f"{NAME} is not as it was written: what it says of the files has another hash"
        )
    return marker


def _check_form(content: bytes) -> None:
    """Refuse a marker written by another version.

    Raises:
        Damaged: names its format, and the one that this version reads.
    """
    try:
        said = json.loads(content)
    except ValueError:
        return
    if isinstance(said, dict) and (form := said.get("format", 1)) != FORMAT:
        raise Damaged(f"{NAME} is of form {form}; this version reads {FORMAT}")


def examined(folder: Path, *, named: bool = True) -> Marker:
    """Read and check the marker in a checkpoint's folder.

    Args:
        named: whether the folder has to have its step's name.

    Raises:
        Damaged: it is missing, or not as it was written; with the reason.
    """
    try:
        content = (folder / NAME).read_bytes()
    except OSError as error:
        raise Damaged(f"{NAME} cannot be read: {error.strerror}") from None
    marker = parsed(content)
    if named and folder_of(folder.parent, marker.step) != folder:
        raise Damaged(f"{NAME} is of step {marker.step}")
    return marker


def read(folder: Path, *, named: bool = True) -> Marker | None:
    """Return the marker like ``examined``, or None if it is missing or damaged."""
    try:
        return examined(folder, named=named)
    except Damaged:
        return None


def problem(folder: Path, name: str, written: Written) -> str | None:
    """Return what is wrong with a shard, or None; it and its hashes must have the written sizes."""
    path = folder / name
    blocks = -(-written.bytes // BLOCK)
    for one, size in ((path, written.bytes), (hashes_path(path), blocks * HASH)):
        if not one.is_file():
            return f"{one.name} is not a file" if one.exists() else f"{one.name} is missing"
        if (found := one.stat().st_size) != size:
            return f"{one.name} has {found} bytes, {size} were written"
    return None


def strays(folder: Path, said: Marker) -> list[str]:
    """Return the names of shards in the folder that do not belong to the checkpoint."""
    return sorted({path.name for path in folder.glob("*.safetensors")} - {*said.files})


def strangers(own: Path, parts: Parts) -> Iterator[str]:
    """Yield a sentence for each other training whose checkpoints lie beside the folder ``own``."""
    for folder in sorted(path for path in own.parent.glob("*") if path != own and path.is_dir()):
        said = [read(folder_of(folder, step)) for step in steps(folder)]
        for newest in [one.lineage for one in said if one and one.lineage][-1:]:
            differs = "; ".join(parts.differences(newest.parts).values())
            yield (
                f"{folder}: holds checkpoints of another training: {differs}; they are not "
                f"resumed, this training begins in {own}"
            )
