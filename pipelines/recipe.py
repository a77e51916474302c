"""Read a recipe: YAML, then ``--set`` overrides, then types; every error names its field."""

from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from errors import RecipeError
from pipelines.config import Recipe, nearest


def load(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    """The recipe in ``path`` with ``field.path=value`` overrides applied in order.

    Raises:
        RecipeError: the file is missing or no YAML; an override is malformed; a field is unknown,
            missing or wrong. One line a problem: field path, value, what was expected.
    """
    tree = _read(path)
    for override in overrides:
        _override(tree, override)
    try:
        return Recipe.model_validate(tree)
    except ValidationError as error:
        problems = [_describe(problem) for problem in error.errors()]
        raise RecipeError("\n".join(f"{path}: {problem}" for problem in problems)) from None


def _read(path: Path) -> dict[str, Any]:
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
        tree = yaml.load(text, Loader=_StrictLoader)  # noqa: S506 (a SafeLoader)
    except yaml.YAMLError as error:
        raise RecipeError(f"{path}: is no YAML: {' '.join(str(error).split())}") from None
    if not isinstance(tree, dict):
        raise RecipeError(
            f"{path}: must be a mapping of sections (pipeline:, aws:, …), not {tree!r}"
        )
    return tree


class _StrictLoader(yaml.SafeLoader):
    """YAML lets the second of two equal keys win in silence; here that is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} stands twice", node.start_mark
                )
        return super().construct_mapping(node, deep)


def _override(tree: dict[str, Any], override: str) -> None:
    """Apply one ``field.path=value`` to the tree; the value is read as YAML."""
    path, equals, text = override.partition("=")
    fields = path.split(".")
    if not equals or not all(fields):
        raise RecipeError(f"--set {override}: must be field.path=value, e.g. gate.margin=0.1")
    section = tree
    for depth, field in enumerate(fields[:-1]):
        section = section.setdefault(field, {})
        if not isinstance(section, dict):
            holder = ".".join(fields[: depth + 1])
            raise RecipeError(f"--set {override}: {holder} is a value, not a section")
    try:
        section[fields[-1]] = yaml.load(text, Loader=_StrictLoader)  # noqa: S506 (a SafeLoader)
    except yaml.YAMLError:
        raise RecipeError(f"--set {override}: the value is no YAML; quote it") from None


def _describe(problem: dict[str, Any]) -> str:
    """One problem of pydantic's in a recipe writer's words."""
    location = [part for part in problem["loc"] if part != "__pydantic_extra__"]
    field = ".".join(str(part) for part in location) or "recipe"
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "extra_forbidden":
        valid = _fields_at(location[:-1])
        return (
            f"{field}: unknown field (value {problem['input']!r}); {nearest(location[-1], valid)}"
        )
    if problem["type"] == "missing":
        return f"{field}: is missing; add it to the recipe or with --set {field}=…"
    if field == "recipe":  # a check across sections: its message names the field
        return message
    if problem["type"] == "value_error":
        return f"{field}: {message}"
    return f"{field}: is {problem['input']!r}; expected: {message}"


def _fields_at(location: Sequence[str | int]) -> list[str]:
    """The names that are valid in the section at ``location``."""
    model: Any = Recipe
    for part in location:
        named = {field.alias or name: field for name, field in model.model_fields.items()}
        candidates = (named[part].annotation, *get_args(named[part].annotation))
        model = next(c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel))
    return [field.alias or name for name, field in model.model_fields.items()]
