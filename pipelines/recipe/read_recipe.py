"""Read a recipe: YAML, what it extends, its environment, ``--set`` overrides, types; an error names
its field.
"""

import sys
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from pipelines.recipe import environments, extended_recipe
from pipelines.recipe.config import Recipe
from pipelines.recipe.tune_section import refuse_tune, trial_recipes
from training.config import TrainConfig
from trainyard import secrets
from trainyard.common.errors import RecipeError, TrainingError, nearest
from trainyard.read_yaml import DEEPEST, BoundedLoader, load_yaml

LONGEST = 200  # characters of a value in a message
Model = TypeVar("Model", bound=BaseModel)


def load(path: Path, overrides: Sequence[str] = (), environment: str | None = None) -> Recipe:
    """Return the recipe in ``path`` for an environment of it, with ``field.path=value`` overrides
    applied in order.

    Raises:
        RecipeError: the file is missing or not YAML; an override is malformed; a field is unknown,
            missing or wrong, in any of its environments; it has no such environment. One line per
            problem: field path, value, what was expected.
    """
    tree = extended_recipe.read(path, read_file)
    with _problems_of(path):
        known = environments.take(tree)
        chosen = environments.merged(tree, known, environment)
    for given in overrides:
        override(chosen, given)
    _make_importable(path, chosen)
    with _problems_of(path):
        if known:
            environments.refuse(tree, known, environment, chosen, _checked)
        return _checked(chosen)


@contextmanager
def _problems_of(path: Path) -> Iterator[None]:
    """Name the file in each line of an error."""
    try:
        yield
    except RecipeError as error:
        raise RecipeError(f"{path}: " + str(error).replace("\n", f"\n{path}: ")) from None


def _checked(tree: dict[str, Any]) -> Recipe:
    """Return the tree as a recipe, when its sections and its workload fit each other."""
    try:
        recipe = _typed(Recipe, tree)
        if recipe.data is not None:
            config = recipe.samples_spec.config
            settings = _typed(config, recipe.workload.config, "workload", "config")
            if recipe.train.loop is not None:
                _check_split(recipe, recipe.train.loop, settings)
                _check_slices(recipe, settings)
        if recipe.tune is not None:
            _check_search(recipe, tree)
    except TrainingError as error:
        raise RecipeError(f"workload.name: {error}") from None
    _refuse_secrets(recipe)
    return recipe


def _check_split(recipe: Recipe, loop: TrainConfig, settings: BaseModel) -> None:
    """Ask the workload whether its model and sequences can be split as the training asks."""
    tensor, pipeline, stages = loop.tensor_parallel, loop.pipeline_parallel, loop.stages
    if refused := recipe.workload_spec.refuse_split(settings, tensor, stages):
        each = f" × {stages // pipeline} stages per rank = {stages}" if stages > pipeline else ""
        raise RecipeError(
            f"train.loop.tensor_parallel {tensor}, train.loop.pipeline_parallel {pipeline}{each}: "
            f"workload {recipe.workload.name}: {refused}"
        )
    if refused := recipe.workload_spec.refuse_layout(settings, loop):
        raise RecipeError(f"train.loop: workload {recipe.workload.name}: {refused}")


def _check_search(recipe: Recipe, tree: dict[str, Any]) -> None:
    """Check the search, and that a recipe with values at the ends of its ranges is valid, too."""
    if refused := refuse_tune(recipe):
        raise RecipeError(refused)
    for values, trial in trial_recipes(recipe, tree):
        try:
            _checked(trial)
        except RecipeError as error:
            said = ", ".join(f"{name} {value!r}" for name, value in values.items())
            raise RecipeError(f"tune.ranges: with {said}: {error}") from None


def _check_slices(recipe: Recipe, settings: BaseModel) -> None:
    """Ask the workload for the slices of its examples."""
    known = recipe.workload_spec.slices(settings)
    for name in recipe.evaluate.slices:
        if name not in known:
            there = nearest(name, list(known)) if known else "it knows none"
            raise RecipeError(
                f"evaluate.slices: {name!r} is not a slice of workload {recipe.workload.name}; "
                f"{there}"
            )
        kept = recipe.shard.by_folder or (recipe.data is not None and recipe.data.inputs)
        if name == recipe.workload_spec.sliced_by_input(settings) and not kept:
            raise RecipeError(
                f"evaluate.slices: {name!r} is the folder that an example's raw data lay in, which "
                "the shards do not keep; set shard.by_folder to true, or data.inputs"
            )


def _refuse_secrets(recipe: Recipe) -> None:
    """Refuse secrets before anything is printed or uploaded; the message says where, not what."""
    for found in secrets.find(recipe.model_dump(mode="json", by_alias=True)):
        raise RecipeError(
            f"{'.'.join(map(str, found))}: looks like a secret, and everyone who may describe the "
            "pipeline or its jobs reads the recipe's values; keep it in AWS Secrets Manager, give "
            "its ARN here, and read it in the job"
        )


def _make_importable(path: Path, tree: dict[str, Any]) -> None:
    """Put ``workload.source`` on Python's path: the recipe is checked with the workload's spec."""
    workload = tree.get("workload")
    source = workload.get("source") if isinstance(workload, dict) else None
    if isinstance(source, str):
        sys.path.insert(0, str((path.parent / source).resolve()))


def _typed(model: type[Model], value: Any, *where: str) -> Model:
    """Return ``value`` as a ``model``; it is at ``where`` in the recipe."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        problems = [_describe(problem, model, where) for problem in error.errors()]
        raise RecipeError("\n".join(problems)) from None


def sha256(path: Path) -> str:
    """Return a hash of the recipe's file and of those that it extends."""
    return extended_recipe.sha256(path, read_file)


def read_file(path: Path) -> dict[str, Any]:
    """Return the content of one recipe's file.

    Raises:
        RecipeError: the file cannot be read, or is not a YAML mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        found = sorted(str(file) for file in path.parent.glob("*.yaml"))
        raise RecipeError(
            f"{path}: no such recipe; "
            + (f"there are {', '.join(found)}" if found else f"{path.parent} holds no recipe")
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(f"{path}: cannot be read: {error}") from None
    try:
        tree = load_yaml(text, _StrictLoader)
    except yaml.YAMLError as error:
        raise RecipeError(f"{path}: is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(tree, dict):
        raise RecipeError(
            f"{path}: must be a mapping of sections (pipeline:, aws:, …), not {_brief(tree)}"
        )
    return tree


class _StrictLoader(BoundedLoader):
    """Refuse equal keys; plain YAML silently takes the second of two.

    A key that is not text is refused too: every field of a recipe has a name.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for each, _ in node.value:
            if each.tag == "tag:yaml.org,2002:merge":  # <<: a key named otherwise wins
                continue
            key = self.construct_object(each, deep=True)
            why = "is not a name" if not isinstance(key, str) else "stands twice" * (key in seen)
            if why:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {_brief(key)} {why}", each.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


def override(tree: dict[str, Any], given: str) -> None:
    """Apply one ``field.path=value`` to a recipe's tree; the value is read as YAML.

    Raises:
        RecipeError: it has another form.
    """
    path, equals, text = given.partition("=")
    fields = path.split(".")
    if not equals or not all(fields) or len(fields) > DEEPEST:
        raise RecipeError(f"--set {given:.200}: must be field.path=value, e.g. gate.margin=0.1")
    section = tree
    for depth, field in enumerate(fields[:-1]):
        section = section.setdefault(field, {})
        if not isinstance(section, dict):
            holder = ".".join(fields[: depth + 1])
            raise RecipeError(f"--set {given}: {holder} is a value, not a section")
    try:
        section[fields[-1]] = load_yaml(text, _StrictLoader)
    except yaml.YAMLError as error:
        why = " ".join(str(error).split())
        raise RecipeError(f"--set {given:.200}: the value is not YAML; quote it ({why})") from None


def _describe(problem: ErrorDetails, model: type[BaseModel], where: tuple[str, ...]) -> str:
    """Describe one of pydantic's problems in a recipe writer's words."""
    tags = ("__pydantic_extra__", "<")  # pydantic's own, and those of a section's forms
    location = [part for part in problem["loc"] if not str(part).startswith(tags)]
    field = ".".join(str(part) for part in (*where, *location))
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "extra_forbidden":
        close = nearest(str(location[-1]), _fields_at(location[:-1], model))
        return f"{field}: unknown field (value {_brief(problem['input'])}); {close}"
    if problem["type"] == "missing":
        return f"{field}: is missing; add it to the recipe or with --set {field}=…"
    if not field:  # a check across sections: its message names the field
        return message
    if problem["type"] == "value_error":
        return f"{field}: {message}"
    return f"{field}: is {_brief(problem['input'])}; expected: {message}"


def _brief(value: Any) -> str:
    """Return ``value`` as Python writes it, shortened for a message."""
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _fields_at(location: Sequence[str | int], model: Any) -> list[str]:
    """Return the names that are valid in the section of ``model`` at ``location``."""
    for part in location:
        named = {field.alias or name: field for name, field in model.model_fields.items()}
        if part in named:  # else a place in a list, a key, or the name of a union's type
            model = next(_models_in(named[str(part)].annotation))
    return [field.alias or name for name, field in model.model_fields.items()]


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Iterate over the sections that a type names, however deep."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)
