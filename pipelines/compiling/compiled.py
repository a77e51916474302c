"""A pipeline as it is uploaded: what compiling a recipe gives, and every verb works with."""

import hashlib
from dataclasses import dataclass

from pipelines.compiling.assets import Asset
from pipelines.recipe.config import Budget
from trainyard.plan.deployed import State


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledPipeline:
    """A pipeline, compiled: what upsert uploads, byte for byte."""

    name: str
    description: str
    region: str
    role: str
    body: str
    """The definition JSON."""

    assets: tuple[Asset, ...]
    """The folders that the definition refers to."""

    max_parallel_steps: int
    tags: dict[str, str]
    kms_key: str | None
    budget: Budget = Budget()
    """What a run of it may cost."""

    fallback_instance_types: tuple[str, ...] = ()
    """What its training is started on where there is no capacity for its own type."""

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.body.encode()).hexdigest()

    @property
    def state(self) -> State:
        """What upserting it makes of the pipeline."""
        return State(
            name=self.name,
            definition=self.body,
            role=self.role,
            description=self.description,
            max_parallel_steps=self.max_parallel_steps,
            tags=self.tags,
        )
