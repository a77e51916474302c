"""The last file of a checkpoint, which says that it is whole; and how its folder is found.

SageMaker brings back from S3 whatever lies there, so a folder of checkpoints may hold anything:
what does not look exactly like a checkpoint of ours is none, and stops nobody.
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
    """Of its blocks' hashes (``training.checkpoint.block_hashes``)."""


class Marker(BaseModel):
    """complete.json."""

    model_config = ConfigDict(frozen=True)

    format: int = FORMAT

    step: int = Field(ge=0)
    """Optimizer steps that the checkpoint is after."""

    validation_loss: FiniteFloat | None = None
    """At this step, where it was measured."""

    files: dict[str, Written]
    """Name → what is known of every shard."""

    lineage: Lineage | None = None
    """What it was trained with; None where nobody said."""

    table: Table = Table(layouts=(), tensors={})
    """Which shard, by its number among the sorted names, has which part of which tensor."""

    sha256: str | None = None
    """Of files and table: what a damaged table says would be read into wrong places."""

    def sealed(self) -> "Marker":
        """With the hash of files and table."""
        return self.model_copy(update={"sha256": self._hash()})

    @property
    def is_sealed(self) -> bool:
        """Whether it is as it was written."""
        return self.sha256 == self._hash()

    def _hash(self) -> str:
        return json_sha256(self.model_dump(mode="json", include={"files", "table"}))

    @property
    def names(self) -> list[str]:
        """Of the shards, in the order of their numbers."""
        return sorted(self.files)


class Damaged(ValueError):
    """A marker says nothing, or not what it was written with."""


def folder_of(folder: Path, step: int) -> Path:
    """Where below ``folder`` the checkpoint of a step lies."""
    return folder / f"{PREFIX}{step:08d}"


def steps(folder: Path, name: str = NAME) -> list[int]:
    """Steps of the checkpoints in ``folder`` that have a marker, in order; strays are left out."""
    found = _numbered(path.parent for path in folder.glob(f"{PREFIX}*/{name}"))
    return [step for step in found if (folder_of(folder, step) / name).is_file()]


def unfinished(folder: Path) -> list[int]:
    """Steps of the checkpoints in ``folder`` that have shards, or a part of one, and no marker."""
    found = _numbered(path.parent for path in folder.glob(f"{PREFIX}*/*shard-*"))
    return [step for step in found if not (folder_of(folder, step) / NAME).is_file()]


def _numbered(folders: Iterator[Path]) -> list[int]:
    numbers = (path.name.removeprefix(PREFIX) for path in folders)
    found = {int(number) for number in numbers if number.isascii() and number.isdecimal()}
    return sorted(found)


def parsed(content: bytes) -> Marker:
    """A marker's content.

    Raises:
        Damaged: it is none, or not as it was written; why.
    """
    _check_form(content)
    try:
        marker = Marker.model_validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise Damaged(f"{NAME} is damaged: {field + ': ' if field else ''}{first['msg']}") from None
    if not all("/" not in name and name.endswith(".safetensors") for name in marker.files):
        raise Damaged(f"{NAME} names a file that is no shard")
    if not marker.is_sealed:
        raise Damaged(
            f"{NAME} is not as it was written: what it says of the files has another hash"
        )
    return marker


def _check_form(content: bytes) -> None:
    """Refuse what another version wrote.

    Raises:
        Damaged: says its form, and the one that is read.
    """
    try:
        said = json.loads(content)
    except ValueError:
        return
    if isinstance(said, dict) and (form := said.get("format", 1)) != FORMAT:
        raise Damaged(f"{NAME} is of form {form}; this version reads {FORMAT}")


def examined(folder: Path, *, named: bool = True) -> Marker:
    """What the marker of a checkpoint's folder says.

    Args:
        named: whether the folder has to have its step's name.

    Raises:
        Damaged: it is missing, or not as it was written; why.
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
    """As ``examined``; None when there is no marker or it is damaged."""
    try:
        return examined(folder, named=named)
    except Damaged:
        return None


def problem(folder: Path, name: str, written: Written) -> str | None:
    """What a look at a shard finds wrong: it and its hashes have to be as long as written."""
    path = folder / name
    blocks = -(-written.bytes // BLOCK)
    for one, size in ((path, written.bytes), (hashes_path(path), blocks * HASH)):
        if not one.is_file():
            return f"{one.name} is no file" if one.exists() else f"{one.name} is missing"
        if (found := one.stat().st_size) != size:
            return f"{one.name} has {found} bytes, {size} were written"
    return None


def strays(folder: Path, said: Marker) -> list[str]:
    """Names of shards in the folder that are none of the checkpoint's."""
    return sorted({path.name for path in folder.glob("*.safetensors")} - {*said.files})


def strangers(own: Path, parts: Parts) -> Iterator[str]:
    """A sentence for each other training whose checkpoints lie beside the folder ``own``."""
    for folder in sorted(path for path in own.parent.glob("*") if path != own and path.is_dir()):
        said = [read(folder_of(folder, step)) for step in steps(folder)]
        for newest in [one.lineage for one in said if one and one.lineage][-1:]:
            differs = "; ".join(parts.differences(newest.parts).values())
            yield (
                f"{folder}: holds checkpoints of another training: {differs}; they are not "
                f"resumed, this training begins in {own}"
            )
