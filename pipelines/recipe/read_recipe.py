"""Read a recipe: YAML, what it extends, its environment, ``--set`` overrides, types; an error names
each wrong field, where it was written, and what is expected.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from pipelines.recipe import environments, extended_recipe, field_relations
from pipelines.recipe.config import Recipe
from pipelines.recipe.extended_recipe import StrictLoader, Tree
from pipelines.recipe.field_messages import FieldMessages
from pipelines.recipe.field_origins import located_problems
from pipelines.recipe.partial_section import Model, broken_rules, read_partially
from pipelines.recipe.tune_section import refuse_tune, trial_recipes
from training.config import TrainConfig
from training.workloads import spec
from trainyard import secrets
from trainyard.common.errors import RecipeError, TrainingError, nearest
from trainyard.read_yaml import DEEPEST, load_yaml

ABSENT = object()
"""Stands in the place of a wrong value that another check has already named."""


def load(path: Path, overrides: Sequence[str] = (), environment: str | None = None) -> Recipe:
    """Return the recipe in ``path`` for an environment of it, with ``field.path=value`` overrides
    applied in order.

    Raises:
        RecipeError: the file is missing or not YAML; an override is malformed; a field is unknown,
            missing or wrong, in any of its environments; it has no such environment. One line per
            problem: where it was written, field path, value, what was expected.
    """
    tree = extended_recipe.read(path)
    with located_problems(path, overrides, environment):
        environment_trees = environments.take(tree)
        chosen_tree = environments.merge_environment(tree, environment_trees, environment)
    for assignment in overrides:
        override(chosen_tree, assignment)
    _make_importable(path, chosen_tree)
    with located_problems(path, overrides, environment):
        if environment_trees:
            environments.refuse(tree, environment_trees, environment, chosen_tree, _check_tree)
        return _check_tree(chosen_tree)


def _check_tree(tree: Tree) -> Recipe:
    """Return the tree as a recipe, when its sections and its workload fit each other.

    Raises:
        RecipeError: a line for everything that is wrong; what depends on a wrong field is not
            checked.
    """
    problems, tree = _workload_problems(tree)
    recipe, wrong = _read_section(Recipe, tree)
    problems += wrong
    for check in (_settings_problems, field_relations.list_errors, _secret_problems):
        problems += check(recipe, partial=bool(problems))
    if not problems and recipe.tune is not None:
        problems += _search_problems(recipe, tree)
    if problems:
        raise RecipeError("\n".join(dict.fromkeys(problems)))
    return recipe


def _workload_problems(tree: Tree) -> tuple[list[str], Tree]:
    """Check that there is such a workload; return the tree without its name where there is none."""
    workload = tree.get("workload")
    if not isinstance(workload, dict) or not isinstance(name := workload.get("name"), str):
        return [], tree
    try:
        spec(name)
    except TrainingError as error:
        return [f"workload.name: {error}"], {**tree, "workload": {**workload, "name": ABSENT}}
    return [], tree


def _read_section(model: type[Model], value: Any, *where: str) -> tuple[Model, list[str]]:
    """Return ``value``, which is at ``where`` in the recipe, as a ``model``, and what is wrong with
    it: then the model has only the fields that are right.
    """
    try:
        return model.model_validate(value), []
    except ValidationError as error:
        details = [detail for detail in error.errors() if detail["input"] is not ABSENT]
        locations = [detail["loc"] for detail in error.errors()]
    messages = FieldMessages(model, where, Recipe)
    partial = read_partially(model, value, locations)
    of_sections = [
        messages.about_section(location, text) for location, text in broken_rules(partial)
    ]
    return partial, [*messages.describe(details), *of_sections]


def _settings_problems(recipe: Recipe, *, partial: bool) -> Iterator[str]:
    """Check the workload's own settings, and whether they fit the training and the evaluation."""
    try:
        if recipe.data is None:
            return
        config, workload_settings = recipe.samples_spec.config, recipe.workload.config
    except AttributeError:
        if not partial:
            raise
        return
    settings, problems = _read_section(config, workload_settings, "workload", "config")
    yield from problems
    for check in (_split_problems, _slice_problems):
        try:
            yield from check(recipe, settings)
        except AttributeError:
            if not (partial or problems):
                raise


def _split_problems(recipe: Recipe, settings: BaseModel) -> Iterator[str]:
    """Ask the workload whether its model and sequences can be split as the training asks."""
    loop: TrainConfig | None = recipe.train.loop
    if loop is None:
        return
    stages, workload = loop.stages, recipe.workload.name
    if refusal := recipe.workload_spec.refuse_split(settings, loop.tensor_parallel, stages):
        field = "tensor_parallel" if loop.tensor_parallel > 1 else "pipeline_parallel"
        yield f"train.loop.{field}: is {getattr(loop, field)}; workload {workload}: {refusal}"
    if refusal := recipe.workload_spec.refuse_layout(settings, loop):
        yield f"train.loop: workload {workload}: {refusal}"


def _slice_problems(recipe: Recipe, settings: BaseModel) -> Iterator[str]:
    """Ask the workload for the slices of its examples."""
    if recipe.train.loop is None:
        return
    known_slices, kind = recipe.workload_spec.slices(settings), recipe.workload.name
    for name in recipe.evaluate.slices:
        if name not in known_slices:
            near = nearest(name, [*known_slices])
            yield f"evaluate.slices: {name!r} is not a slice of workload {kind}; {near}"
        data = recipe.data
        keeps_folders = recipe.shard.by_folder or (
            data is not None and (data.inputs or data.shards)
        )
        if name == recipe.workload_spec.sliced_by_input(settings) and not keeps_folders:
            yield (
                f"evaluate.slices: {name!r} is the folder that an example's raw data lay in, which "
                "the shards do not keep; set shard.by_folder to true, or data.inputs"
            )


def _search_problems(recipe: Recipe, tree: Tree) -> Iterator[str]:
    """Check the search, and that a recipe with values at the ends of its ranges is valid, too."""
    if refusal := refuse_tune(recipe):
        yield refusal
        return
    for values, trial in trial_recipes(recipe, tree):
        try:
            _check_tree(trial)
        except RecipeError as error:
            trial_text = ", ".join(f"{name} {value!r}" for name, value in values.items())
            yield f"tune.ranges: with {trial_text}: {error}"
            return


def _secret_problems(recipe: Recipe, *, partial: bool) -> Iterator[str]:
    """Refuse secrets before anything is printed or uploaded; the message says where, not what."""
    for secret_path in secrets.find(
        recipe.model_dump(mode="json", by_alias=True, warnings=not partial)
    ):
        yield (
            f"{'.'.join(map(str, secret_path))}: looks like a secret, and everyone who may "
            "describe the "
            "pipeline or its jobs reads the recipe's values; keep it in AWS Secrets Manager, give "
            "its ARN here, and read it in the job"
        )


def _make_importable(path: Path, tree: dict[str, Any]) -> None:
    """Put ``workload.source`` on Python's path: the recipe is checked with the workload's spec."""
    workload = tree.get("workload")
    source = workload.get("source") if isinstance(workload, dict) else None
    if isinstance(source, str):
        sys.path.insert(0, str((path.parent / source).resolve()))


def override(tree: dict[str, Any], assignment: str) -> None:
    """Apply one ``field.path=value`` to a recipe's tree; the value is read as YAML.

    Raises:
        RecipeError: it has another form.
    """
    path, equals, text = assignment.partition("=")
    fields = path.split(".")
    if not equals or not all(fields) or len(fields) > DEEPEST:
        raise RecipeError(
            f"--set {assignment:.200}: must be field.path=value, e.g. gate.margin=0.1"
        )
    section = tree
    for depth, field in enumerate(fields[:-1]):
        section = section.setdefault(field, {})
        if not isinstance(section, dict):
            holder = ".".join(fields[: depth + 1])
            raise RecipeError(f"--set {assignment}: {holder} is a value, not a section")
    try:
        section[fields[-1]] = load_yaml(text, StrictLoader)
    except yaml.YAMLError as error:
        message = " ".join(str(error).split())
        raise RecipeError(
            f"--set {assignment:.200}: the value is not YAML; quote it ({message})"
        ) from None
