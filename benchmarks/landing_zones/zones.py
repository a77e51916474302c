"""Read a landing zone's folder: its recipe, and what its benchmark has to know beside it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

HERE = Path(__file__).parent
RECIPE, ZONE = "recipe.yaml", "zone.yaml"
Deploy = Literal["upsert", "cloudformation", "terraform"]


@dataclass(frozen=True, kw_only=True)
class Zone:
    """A company's account and its habits, as settings."""

    folder: Path
    has: str
    """What is particular about it."""

    deploy: Deploy = "upsert"
    """Who deploys the pipeline in an offline run."""

    environments: tuple[str, ...] = ()
    boundary: str | None = None
    """ARN of the permissions boundary that each of its roles gets."""

    scp: str | None = None
    """File of its service control policies."""

    infra: tuple[str, ...] = ()
    """Options of ``infra``: ``--no-roles``, where jobs and pipeline share one; ``--no-group``."""

    runs: bool = True
    """Whether the emulator can run it."""

    offline: tuple[str, ...] = ()
    """Settings of what asks the emulator, which has one account only."""

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def one_role(self) -> bool:
        """Whether jobs and pipeline share a role, for which no template can be derived."""
        return "--no-roles" in self.infra

    @property
    def recipe(self) -> Path:
        return self.folder / RECIPE


def read(folder: Path) -> Zone:
    """Read one zone."""
    given: dict[str, Any] = yaml.safe_load((folder / ZONE).read_text(encoding="utf-8"))
    return Zone(
        folder=folder, **{k: tuple(v) if isinstance(v, list) else v for k, v in given.items()}
    )


def invented() -> list[Zone]:
    """Return the zones of this folder, by name."""
    return [read(path.parent) for path in sorted(HERE.glob(f"zones/*/{ZONE}"))]


def written(folder: Path, recipe: dict[str, Any], about: dict[str, Any]) -> Zone:
    """Write a zone into a new folder, and read it."""
    folder.mkdir(parents=True)
    (folder / RECIPE).write_text(yaml.safe_dump(recipe, sort_keys=False), encoding="utf-8")
    (folder / ZONE).write_text(yaml.safe_dump(about, sort_keys=False), encoding="utf-8")
    return read(folder)
