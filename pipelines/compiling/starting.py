"""A training that begins with a registered model: which file that is, asked once, when compiling.

The definition then names the file and its hash. So a run begins with what was planned, whatever
happens to the package meanwhile.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from pipelines.approval.champion import model_of
from pipelines.recipe.config import Recipe
from training.start import BASE, StartFrom, read_start
from trainyard.common.errors import TrainingError
from trainyard.language.steps import steps_of
from trainyard.service import client


def started(recipe: Recipe) -> Recipe:
    """The recipe with the file of ``train.start_from.model_package``; asks nobody without one.

    Raises:
        ServiceError: there is no such package, its model is not there, or AWS refused.
    """
    start = recipe.train.start_from
    if start is None or start.model_package is None or start.model is not None:
        return recipe
    region = recipe.aws.region or start.model_package.split(":")[3]
    fix = "name another in train.start_from.model_package, or its file in train.start_from.model"
    uri, sha256 = model_of(
        client("sagemaker", region), start.model_package, "train.start_from.model_package", fix
    )
    found = start.model_copy(update={"model": uri, "model_sha256": start.model_sha256 or sha256})
    train = recipe.train.model_copy(update={"start_from": found})
    return recipe.model_copy(update={"train": train})


def start_of(recipe: Recipe) -> dict[str, Any] | None:
    """What the recipe says that the weights begin with; None for fresh ones."""
    start = recipe.train.start_from
    return None if start is None else start.model_dump(mode="json", exclude_defaults=True)


def base_of(recipe: Recipe) -> dict[str, str]:
    """What the registry is told of the model that the training begins with; nothing without one."""
    start = recipe.train.start_from
    if start is None or recipe.train.base is None:
        return {}
    return {BASE: start.model_package or recipe.train.base}


def told(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(step, what its weights begin with, in words) of each training that says so."""
    for step in steps_of(document["Steps"]):
        given = step.arguments.get("HyperParameters", {}).get("start_from")
        if isinstance(given, str) and (start := _read(given)):
            yield step.name, start.words()


def _read(text: str) -> StartFrom | None:
    """None where it is not of ours: a plan compares anybody's pipeline."""
    try:
        return read_start(text)
    except TrainingError:
        return None
