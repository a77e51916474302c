"""The last file of a checkpoint, which says that it is whole; and how its folder is found.

SageMaker brings back from S3 whatever lies there, so a folder of checkpoints may hold anything:
what does not look exactly like a checkpoint of ours is none, and stops nobody.
"""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from training.lineage import Lineage

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


def read(folder: Path) -> Marker | None:
    """What the marker of a checkpoint's folder says; None when there is none or it is damaged."""
    try:
        marker = Marker.model_validate_json((folder / NAME).read_bytes())
    except (OSError, ValidationError):
        return None
    safe = all("/" not in name and name.endswith(".safetensors") for name in marker.files)
    return marker if safe and folder_of(folder.parent, marker.step) == folder else None
