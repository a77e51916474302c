"""The last file of a checkpoint, which says that it is whole; and how its folder is found.

SageMaker brings back from S3 whatever lies there, so a folder of checkpoints may hold anything:
what does not look exactly like a checkpoint of ours is none, and stops nobody.
"""

from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from training.identity import Parts
from training.lineage import Lineage
from trainyard.common.hashes import file_sha256_or_none

NAME = "complete.json"
PREFIX = "step-"


class Marker(BaseModel):
    """complete.json."""

    model_config = ConfigDict(frozen=True)

    step: int = Field(ge=0)
    """Optimizer steps that the checkpoint is after."""

    validation_loss: FiniteFloat | None = None
    """At this step, where it was measured."""

    files: dict[str, str]
    """Name → SHA-256 of every other file of the checkpoint."""

    lineage: Lineage | None = None
    """What it was trained with; None where nobody said."""


def folder_of(folder: Path, step: int) -> Path:
    """Where below ``folder`` the checkpoint of a step lies."""
    return folder / f"{PREFIX}{step:08d}"


def steps(folder: Path) -> list[int]:
    """Steps of the checkpoints in ``folder`` that have a marker, in order; strays are left out."""
    numbers = (path.parent.name.removeprefix(PREFIX) for path in folder.glob(f"{PREFIX}*/{NAME}"))
    found = {int(number) for number in numbers if number.isascii() and number.isdecimal()}
    return sorted(step for step in found if (folder_of(folder, step) / NAME).is_file())


def read(folder: Path, *, named: bool = True) -> Marker | None:
    """What the marker of a checkpoint's folder says; None when there is none or it is damaged.

    ``named``: whether the folder has to have its step's name.
    """
    try:
        marker = Marker.model_validate_json((folder / NAME).read_bytes())
    except (OSError, ValidationError):
        return None
    safe = all("/" not in name and name.endswith(".safetensors") for name in marker.files)
    placed = not named or folder_of(folder.parent, marker.step) == folder
    return marker if safe and placed else None


def intact(folder: Path, said: Marker) -> list[str]:
    """Names of the checkpoint's files that are there as they were written."""
    return [n for n, digest in said.files.items() if file_sha256_or_none(folder / n) == digest]


def torn(folder: Path, said: Marker) -> str | None:
    """What is wrong with a checkpoint's files; the reader takes all that lie there."""
    wrong = said.files.keys() - intact(folder, said)
    strays = {path.name for path in folder.glob("*.safetensors")} - {*said.files}
    if wrong:
        return f"{min(wrong)} is missing or not as it was written; name an older checkpoint"
    return f"{min(strays)} is no file of this checkpoint; remove it" if strays else None


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
