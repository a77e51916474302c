"""Read a recipe's file, merged with the one that it extends, which its field ``extends`` names."""

import os
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from trainyard.common.errors import RecipeError
from trainyard.common.hashes import hash_file, hash_lines
from trainyard.read_yaml import BoundedLoader, load_yaml

FIELD = "extends"
LONGEST = 8  # maximum number of recipes in a chain
Tree = dict[str, Any]
PLACES = {
    "workload": ("source",),
    "train": ("script", "source", "requirements", "driver"),
    "evaluate": ("script", "source", "requirements", "request"),
    "inference": ("script",),
}
"""The fields, by section, whose value is a path relative to the recipe."""


def read_extended_recipe(path: Path) -> Tree:
    """Read the recipe in ``path``, merged into the one that it extends, and so on.

    Sections are merged field by field; everything else, including lists, is replaced. Paths in an
    extended recipe stay relative to that recipe.

    Raises:
        RecipeError: a file is missing or is not a recipe, ``extends`` is not a path, or the chain
            is circular.
    """
    result: Tree = {}
    for file, tree in reversed([*_iter_chain(path)]):
        result = overlay_tree(result, _move_paths(tree, file.parent, path.parent))
    result.pop(FIELD, None)
    return result


def list_recipe_files(path: Path) -> list[Path]:
    """Return the recipe's file, the file of the recipe that it extends, and so on."""
    return [file for file, _ in _iter_chain(path)]


def hash_recipe(path: Path) -> str:
    """Return the hash of the recipe's file, or of the list of hashes if it extends others."""
    hashes = [hash_file(file) for file in list_recipe_files(path)]
    return hashes[0] if len(hashes) == 1 else hash_lines(hashes)


def _iter_chain(path: Path) -> Iterator[tuple[Path, Tree]]:
    """Yield (file, tree) of the recipe, of the recipe that it extends, and so on."""
    chain: list[Path] = []
    following: Path | None = path
    while following is not None:
        chain.append(following.resolve())
        if len(chain) > LONGEST or chain[-1] in chain[:-1]:
            raise RecipeError(
                f"{following}: {FIELD} is circular, or its chain has more than {LONGEST} recipes; "
                "merge some of them into one recipe"
            )
        tree = read_file(following)
        yield following, tree
        following = _find_base_path(following, tree)


def _find_base_path(path: Path, tree: Tree) -> Path | None:
    """Return the path of the recipe that this one extends; None if it extends none."""
    base_names = tree.get(FIELD)
    if base_names is None:
        return None
    if not isinstance(base_names, str) or not base_names:
        raise RecipeError(
            f"{path}: {FIELD}: is {base_names!r}; expected the path of a recipe, relative to this "
            "one"
        )
    return path.parent / base_names


def overlay_tree(below: Mapping[str, Any], above: Mapping[str, Any]) -> Tree:
    """Return ``below`` overridden by ``above``; sections are merged field by field."""
    result = dict(below)
    for name, value in above.items():
        base_value = result.get(name)
        if isinstance(base_value, dict) and isinstance(value, dict):
            result[name] = overlay_tree(base_value, value)
        else:
            result[name] = value
    return result


def _move_paths(tree: Tree, home: Path, target_folder: Path) -> Tree:
    """Return the tree of a recipe in folder ``home``, with its paths relative to
    ``target_folder``.
    """
    if home.resolve() == target_folder.resolve():
        return tree
    result = dict(tree)
    for section, names in PLACES.items():
        if isinstance(fields := tree.get(section), dict):
            result[section] = fields | {
                name: os.path.relpath(home.resolve() / fields[name], target_folder.resolve())
                for name in names
                if isinstance(fields.get(name), str)
            }
    return result


def read_file(path: Path) -> Tree:
    """Return the content of one recipe's file.

    Raises:
        RecipeError: the file cannot be read, or is not a YAML mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        recipes = sorted(str(file) for file in path.parent.glob("*.yaml"))
        raise RecipeError(
            f"{path}: no such recipe; "
            + (f"there are {', '.join(recipes)}" if recipes else f"{path.parent} holds no recipe")
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(f"{path}: cannot be read: {error}") from None
    try:
        tree = load_yaml(text, StrictLoader)
    except yaml.YAMLError as error:
        raise RecipeError(f"{path}: is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(tree, dict):
        raise RecipeError(
            f"{path}: must be a mapping of sections (pipeline:, aws:, …), not {tree!r:.200}"
        )
    return tree


class StrictLoader(BoundedLoader):
    """YAML loader that refuses repeated keys, of which plain YAML silently takes the last.

    It also refuses keys that are not text, because every field of a recipe has a name.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Override PyYAML's method: raise ConstructorError for a repeated or non-text key."""
        keys: set[str] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":  # "<<": keys of the mapping itself win
                continue
            key = self.construct_object(key_node, deep=True)
            problem = "is not a name" if not isinstance(key, str) else "is repeated" * (key in keys)
            if problem:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r:.200} {problem}", key_node.start_mark
                )
            keys.add(key)
        return super().construct_mapping(node, deep)


# Find where a recipe's fields were written: file and line, or ``--set``, which is applied last.

SET = "--set"
Field = tuple[str, ...]
Origins = dict[Field, str]
"""Where each field was written: ``recipes/laptop.yaml:47``, or ``--set``."""


class Problem(NamedTuple):
    """A problem in a field of a recipe."""

    origin: str
    """``recipes/laptop.yaml:47`` or ``--set``; only the file if the line is not known."""

    field: str
    """Path of the field, such as train.loop.max_steps; empty if there is not one field."""

    text: str

    def __str__(self) -> str:
        return ": ".join(filter(None, self))


class RecipeProblems(RecipeError):
    """All problems of a recipe, one line for each."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = sorted(problems, key=_parse_origin)
        super().__init__("\n".join(map(str, self.problems)))


def _parse_origin(problem: Problem) -> tuple[str, int]:
    """Return (file, line) of the problem's origin as a sort key; line 0 if it has none."""
    file, _, line = problem.origin.rpartition(":")
    return (file, int(line)) if line.isdecimal() else (problem.origin, 0)


@contextmanager
def located_problems(
    path: Path, overrides: Sequence[str] = (), environment: str | None = None
) -> Iterator[None]:
    """Prefix each line of a RecipeError with the file and line where its field was written.

    Raises:
        RecipeProblems: instead of any other RecipeError.
    """
    try:
        yield
    except RecipeProblems:
        raise
    except RecipeError as error:
        origins = find_field_origins(path, overrides, environment)
        lines = str(error).splitlines()
        raise RecipeProblems([locate_problem(line, origins, path) for line in lines]) from None


def locate_problem(line: str, origins: Origins, path: Path) -> Problem:
    """Return the problem in a line ``field: text``, with the origin of the field."""
    name, colon, text = line.partition(": ")
    if not colon or not re.fullmatch(r"[\w-]+(\.[^\s:]+)*", name):
        return Problem(str(path), "", line)
    field = tuple(name.split("."))
    mentions = (origins.get((*field, word)) for word in re.findall(r"\w+", text)[:FIRST_WORDS])
    # A check across a section's fields: the first field that it names. A missing field: its
    # section.
    above = (origins.get(field[:length]) for length in range(len(field), 0, -1))
    is_section = any(longer[: len(field)] == field and longer != field for longer in origins)
    origin = None if is_section else origins.get(field)
    return Problem(origin or next(filter(None, (*mentions, *above)), str(path)), name, text)


FIRST_WORDS = 12  # of a message, in which names of other fields are looked for


def find_field_origins(path: Path, overrides: Sequence[str], environment: str | None) -> Origins:
    """Return where each field of the recipe in ``path`` was last written.

    Raises:
        RecipeError: a file can no longer be read.
    """
    origins: Origins = {}
    for file in reversed(list_recipe_files(path)):
        try:
            node = yaml.compose(file.read_text(encoding="utf-8"), Loader=BoundedLoader)
        except (OSError, yaml.YAMLError) as error:
            raise RecipeError(f"{file}: cannot be read: {error}") from None
        origins |= {field: f"{file}:{line}" for field, line in _iter_field_lines(node)}
    if environment is not None:
        section = ("environments", environment)
        # A field that the environment sets was written there.
        origins |= {field[2:]: origin for field, origin in origins.items() if field[:2] == section}
    for text in overrides:
        field = tuple(text.partition("=")[0].split("."))
        # An override of a section replaces all fields below it.
        origins = {
            name: position for name, position in origins.items() if name[: len(field)] != field
        }
        origins[field] = SET
    return origins


def _iter_field_lines(node: yaml.Node | None, above: Field = ()) -> Iterator[tuple[Field, int]]:
    """Yield each field of a YAML node with its line, counted from 1."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                yield from _iter_field_lines(value, above)
                continue
            field = (*above, str(key.value))
            yield field, key.start_mark.line + 1
            yield from _iter_field_lines(value, field)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            field = (*above, str(index))
            yield field, value.start_mark.line + 1
            yield from _iter_field_lines(value, field)
