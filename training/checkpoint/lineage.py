"""Records how a checkpoint, and finally the model, was really trained, stretch by stretch.

An interrupted training goes on in another process, perhaps with other ranks. Its past stretches
are then copied from the resumed checkpoint, never derived from its present settings.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from training.identity import Parts


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
    """How the weights came about: this training's parts, and all stretches of its history."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    parts: Parts
    stretches: tuple[Stretch, ...]

    @classmethod
    def begin(cls, parts: Parts, strategy: str, world_size: int) -> "Lineage":
        """Return the lineage of a training that has not made a step yet."""
        stretch = Stretch(
            since=0,
            identity=parts.name,
            code_sha256=parts.code_sha256,
            data=parts.data,
            strategy=strategy,
            world_size=world_size,
        )
        return cls(parts=parts, stretches=(stretch,))

    def after(self, step: int, before: "Lineage") -> "Lineage":
        """Return this training's lineage when it resumes at ``step`` from lineage ``before``."""
        latest = self.stretches[-1].model_copy(update={"since": step})
        earlier = tuple(stretch for stretch in before.stretches if stretch.since < step)
        if earlier and earlier[-1].model_copy(update={"since": step}) == latest:
            return Lineage(parts=self.parts, stretches=earlier)
        return Lineage(parts=self.parts, stretches=(*earlier, latest))

    def as_json(self) -> Mapping[str, Any]:
        """Return the lineage as the model's description records it."""
        return {"identity": self.parts.name, **self.model_dump(mode="json")}
