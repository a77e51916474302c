"""Read a recipe's file, laid over the one that it extends, named by its field ``extends``."""

import os
from collections.abc import Hashable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from trainyard.common.errors import RecipeError
from trainyard.common.hashes import file_sha256, lines_sha256
from trainyard.read_yaml import BoundedLoader, load_yaml

FIELD = "extends"
LONGEST = 8  # most recipes in a chain
Tree = dict[str, Any]
PLACES = {
    "workload": ("source",),
    "train": ("script", "source", "requirements", "driver"),
    "evaluate": ("script", "source", "requirements", "request"),
    "inference": ("script",),
}
"""Section → its fields whose value is a path relative to the recipe."""


def read(path: Path) -> Tree:
    """Read the recipe in ``path``, laid over the one that it extends, and so on.

    Sections are merged field by field; all else, lists too, is replaced. Paths in an extend_verb
    recipe stay relative to that recipe.

    Raises:
        RecipeError: a file is missing or no recipe, ``extends`` is not a path, or the chain is
            circular.
    """
    result: Tree = {}
    for file, tree in reversed([*_chain(path)]):
        result = overlay_tree(result, _move_paths(tree, file.parent, path.parent))
    result.pop(FIELD, None)
    return result


def files(path: Path) -> list[Path]:
    """Return the recipe's file, the one that it extends, and so on."""
    return [file for file, _ in _chain(path)]


def sha256(path: Path) -> str:
    """Return the hash of the recipe's file; where it extends others, that of the list of all
    hashes.
    """
    hashes = [file_sha256(file) for file in files(path)]
    return hashes[0] if len(hashes) == 1 else lines_sha256(hashes)


def _chain(path: Path) -> Iterator[tuple[Path, Tree]]:
    """Yield the recipe, the one that it extends, and so on."""
    chain: list[Path] = []
    following: Path | None = path
    while following is not None:
        chain.append(following.resolve())
        if len(chain) > LONGEST or chain[-1] in chain[:-1]:
            raise RecipeError(
                f"{following}: {FIELD} is circular, or leads over more than {LONGEST} "
                "recipes; write all that it needs into one of them"
            )
        tree = read_file(following)
        yield following, tree
        following = _next(following, tree)


def _next(path: Path, tree: Tree) -> Path | None:
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
    """Return one tree laid over another: sections are merged field by field, all else replaced."""
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
    """Refuse equal keys; plain YAML silently takes the second of two.

    A key that is not text is refused too: every field of a recipe has a name.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys: set[str] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":  # <<: a key named otherwise wins
                continue
            key = self.construct_object(key_node, deep=True)
            problem = (
                "is not a name" if not isinstance(key, str) else "stands twice" * (key in keys)
            )
            if problem:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r:.200} {problem}", key_node.start_mark
                )
            keys.add(key)
        return super().construct_mapping(node, deep)
