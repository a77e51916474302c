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
    hyperparameters = _searchable(recipe)
    for name in tune.ranges:
        if refusal := _refuse_range(name, tune, recipe, hyperparameters):
            return f"tune.ranges.{name}: {refusal}"
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
    ends = {name: _ends(search_range) for name, search_range in recipe.tune.ranges.items()}
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


def _ends(search_range: Range | tuple[Value, ...]) -> list[Value]:
    """Return the values that are tried; of whole numbers also the second, which shows whether they
    have to be multiples of one.
    """
    if not isinstance(search_range, Range):
        return [*search_range]
    second = (
        [search_range.min + 1]
        if isinstance(search_range.min, int) and isinstance(search_range.max, int)
        else []
    )
    return [
        search_range.min,
        *(value for value in second if value < search_range.max),
        search_range.max,
    ]


def _searchable(recipe: Recipe) -> dict[str, Any]:
    """Return hyperparameter → the recipe's own value."""
    if recipe.train.loop is None:
        return dict(recipe.train.arguments)
    return dict(recipe.train.loop) | as_hyperparameters(dict(recipe.workload_config))


def _refuse_range(
    name: str, tune: TuneConfig, recipe: Recipe, hyperparameters: Mapping[str, Any]
) -> str | None:
    loop = recipe.train.loop
    if name not in hyperparameters:
        sections = "train.arguments" if loop is None else "train.loop or workload.config"
        return f"is not in {sections}; {nearest(name, [*hyperparameters])}"
    if loop is not None and (refusal := _refuse_setting(name, recipe)):
        return (
            f"is {refusal}; "
            f"{nearest(name, [n for n in hyperparameters if not _refuse_setting(n, recipe)])}"
        )
    search_range, own_value = tune.ranges[name], hyperparameters[name]
    if not isinstance(own_value, str | bool | int | float):
        return (
            f"{_field(name, recipe)} is {own_value!r}; a search varies numbers, words, true "
            "and false"
        )
    if isinstance(search_range, Range) and (
        isinstance(own_value, bool) or not isinstance(own_value, int | float)
    ):
        return f"{_field(name, recipe)} is {own_value!r}, not a number; give a list of values"
    if not tune.allows(name, own_value):
        return (
            f"does not hold {_field(name, recipe)}, which is {own_value!r}; widen it, or "
            "change that"
        )
    return None


def _field(name: str, recipe: Recipe) -> str:
    """Return the path of a hyperparameter's field in the recipe."""
    if recipe.train.loop is None:
        return f"train.arguments.{name}"
    setting = name.removeprefix(PREFIX)
    return f"train.loop.{name}" if setting == name else f"workload.config.{setting}"


def _refuse_setting(name: str, recipe: Recipe) -> str | None:
    """Return what keeps a setting of the loop or the workload out of a search; None if nothing
    does.
    """
    if name in BUDGET:
        return BUDGET[name]
    if name in IMMATERIAL:
        return "a setting that does not change the weights"
    if not name.startswith(PREFIX):
        return None
    packing_fields = recipe.samples_spec.packed_with
    if packing_fields is None:
        return "a setting that samples may be packed with, since SPEC.packed_with is not set"
    if name.removeprefix(PREFIX) in packing_fields:
        return "a setting that the samples are packed with, before the search"
    if recipe.begins_with_model:
        return "a setting of the model that the training begins with"
    return None


def _refuse_script(tune: TuneConfig, train: TrainStepConfig) -> str | None:
    if tune.metric not in train.metrics:
        metric_names: list[Any] = [*train.metrics]
        return (
            f"tune.metric: is {tune.metric!r}; a script's trainings are compared by one of "
            f"train.metrics: {', '.join(metric_names) or 'none is set'}"
        )
    if tune.strategy == "hyperband":
        return "tune.strategy: hyperband needs the number of lines with the metric; choose random"
    return None
