"""The recipe that takes an advised layout: another one that extends the recipe as it is."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from pipelines.advising.engine import fields
from pipelines.recipe.config import Recipe
from pipelines.recipe.reading import FIELD, load, override
from trainyard.common import whole_file
from trainyard.foresight.advice import Candidate


def changes(recipe: Recipe, one: Candidate) -> dict[str, Any]:
    """The fields of section ``train`` that the layout changes."""
    train = recipe.train
    assert train.loop is not None  # noqa: S101
    loop = _changed(train.loop, fields(one.setting, train.loop))
    machines = {"instance_type": one.offer.name, "instance_count": one.nodes}
    rest = tuple(name for name in train.fallback_instance_types if name != one.offer.name)
    changed = _changed(
        train, {**machines, "processes_per_node": 0, "fallback_instance_types": rest}
    )
    if "fallback_instance_types" in changed:
        changed["fallback_instance_types"] = list(rest)  # as YAML has it
    return changed | ({"loop": loop} if loop else {})


def _changed(now: Any, wanted: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in wanted.items() if getattr(now, name) != value}


def write(
    place: Path,
    path: Path,
    overrides: Sequence[str],
    changed: Mapping[str, Any],
    said: Sequence[str],
) -> None:
    """Write the recipe that extends ``path`` by ``overrides`` and the ``changed`` train section.

    Args:
        said: lines of comment, at the top.

    Raises:
        RecipeError: what they make together is no valid recipe; nothing is written.
    """
    tree: dict[str, Any] = {FIELD: os.path.relpath(path.resolve(), place.resolve().parent)}
    for one in overrides:
        override(tree, one)
    for name, value in changed.items():
        section = tree.setdefault("train", {})
        section[name] = {**section.get(name, {}), **value} if name == "loop" else value
    _check(path, overrides, changed)
    comment = "".join(f"# {line}\n" for line in said)
    text = yaml.safe_dump(tree, sort_keys=False, allow_unicode=True, width=100)
    whole_file.write(place, comment + text)


def _check(path: Path, overrides: Sequence[str], changed: Mapping[str, Any]) -> None:
    """Read the recipe with all that is changed, as whoever reads the new one will."""
    flat = {name: value for name, value in changed.items() if name != "loop"}
    flat |= {f"loop.{name}": value for name, value in changed.get("loop", {}).items()}
    load(path, [*overrides, *(f"train.{name}={value}" for name, value in flat.items())])
