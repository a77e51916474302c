"""The recipe's section ``tune``: whether what it searches are hyperparameters of this training."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from itertools import chain, islice, product
from typing import Any

from pipelines.recipe.config import Recipe
from steps.train.config import TrainStepConfig
from steps.tune.config import Range, TuneConfig, Value
from steps.workload_settings import PREFIX, as_hyperparameters
from training.config import IMMATERIAL
from trainyard.common.errors import nearest

BUDGET = {"max_steps": "the length of a training, which has to be the same for all"}
MOST_COMBINATIONS = 100
"""Combinations of the ranges' ends that are checked; each takes some milliseconds."""


def refuse_tune(recipe: Recipe) -> str | None:
    """Return the field of the recipe that stands in the way of the search, and why; None if none
    does.
    """
    tune, train = recipe.tune, recipe.train
    assert tune is not None  # noqa: S101 (``read_recipe`` has looked)
    known = _searchable(recipe)
    for name in tune.ranges:
        if refused := _refuse_range(name, tune, recipe, known):
            return f"tune.ranges.{name}: {refused}"
    if train.loop is None:
        return _refuse_script(tune, train)
    if tune.metric is not None or tune.goal != "minimize":
        return "tune.metric: the loop's trainings are compared by their validation loss; remove it"
    if train.start_from is not None and train.start_from.checkpoint is not None:
        return "train.start_from.checkpoint: a search cannot begin with another training's middle"
    return None


def trial_recipes(
    recipe: Recipe, tree: Mapping[str, Any]
) -> Iterator[tuple[dict[str, Value], dict[str, Any]]]:
    """Yield (values, the recipe's tree with them and without a search) at the ends of the ranges:
    one range at a time, then combinations of all.

    A script's arguments are not typed, so nothing is yielded for them.
    """
    assert recipe.tune is not None  # noqa: S101 (``read_recipe`` has looked)
    if recipe.train.loop is None:
        return
    ends = {name: _ends(one) for name, one in recipe.tune.ranges.items()}
    alone = ({name: value} for name, values in ends.items() for value in values)
    joint = (dict(zip(ends, values, strict=True)) for values in product(*ends.values()))
    for values in chain(alone, islice(joint, MOST_COMBINATIONS)):
        trial = deepcopy({name: section for name, section in tree.items() if name != "tune"})
        for name, value in values.items():
            if name.startswith(PREFIX):
                section = trial.setdefault("workload", {}).setdefault("config", {})
            else:
                section = trial["train"]["loop"]
            section[name.removeprefix(PREFIX)] = value
        yield values, trial


def _ends(one: Range | tuple[Value, ...]) -> list[Value]:
    """Return the values that are tried; of whole numbers also the second, which shows whether they
    have to be multiples of one.
    """
    if not isinstance(one, Range):
        return [*one]
    second = [one.min + 1] if isinstance(one.min, int) and isinstance(one.max, int) else []
    return [one.min, *(value for value in second if value < one.max), one.max]


def _searchable(recipe: Recipe) -> dict[str, Any]:
    """Return hyperparameter → the recipe's own value."""
    if recipe.train.loop is None:
        return dict(recipe.train.arguments)
    return dict(recipe.train.loop) | as_hyperparameters(dict(recipe.workload_config))


def _refuse_range(
    name: str, tune: TuneConfig, recipe: Recipe, known: Mapping[str, Any]
) -> str | None:
    loop = recipe.train.loop
    if name not in known:
        sections = "train.arguments" if loop is None else "train.loop or workload.config"
        return f"is not in {sections}; {nearest(name, [*known])}"
    if loop is not None and (refused := _fixed(name, recipe)):
        return f"is {refused}; {nearest(name, [n for n in known if not _fixed(n, recipe)])}"
    one, own = tune.ranges[name], known[name]
    if not isinstance(own, str | bool | int | float):
        return f"{_field(name, recipe)} is {own!r}; a search varies numbers, words, true and false"
    if isinstance(one, Range) and (isinstance(own, bool) or not isinstance(own, int | float)):
        return f"{_field(name, recipe)} is {own!r}, not a number; give a list of values"
    if not tune.allows(name, own):
        return f"does not hold {_field(name, recipe)}, which is {own!r}; widen it, or change that"
    return None


def _field(name: str, recipe: Recipe) -> str:
    """Return the path of a hyperparameter's field in the recipe."""
    if recipe.train.loop is None:
        return f"train.arguments.{name}"
    setting = name.removeprefix(PREFIX)
    return f"train.loop.{name}" if setting == name else f"workload.config.{setting}"


def _fixed(name: str, recipe: Recipe) -> str | None:
    """Return what keeps a setting of the loop or the workload out of a search; None if nothing
    does.
    """
    if name in BUDGET:
        return BUDGET[name]
    if name in IMMATERIAL:
        return "a setting that does not change the weights"
    if not name.startswith(PREFIX):
        return None
    packed = recipe.samples_spec.packed_with
    if packed is None:
        return "a setting that samples may be packed with, since SPEC.packed_with is not set"
    if name.removeprefix(PREFIX) in packed:
        return "a setting that the samples are packed with, before the search"
    if recipe.begins_with_model:
        return "a setting of the model that the training begins with"
    return None


def _refuse_script(tune: TuneConfig, train: TrainStepConfig) -> str | None:
    if tune.metric not in train.metrics:
        named: list[Any] = [*train.metrics]
        return (
            f"tune.metric: is {tune.metric!r}; a script's trainings are compared by one of "
            f"train.metrics: {', '.join(named) or 'none is set'}"
        )
    if tune.strategy == "hyperband":
        return "tune.strategy: hyperband needs the number of lines with the metric; choose random"
    return None
