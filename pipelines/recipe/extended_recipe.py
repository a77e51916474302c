"""Resolve a recipe that holds only its differences from another one, named by its field
``extends``.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from trainyard.common.errors import RecipeError
from trainyard.common.hashes import file_sha256, lines_sha256

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


def read(path: Path, read_file: Callable[[Path], Tree]) -> Tree:
    """Read the recipe in ``path``, laid over the one that it extends, and so on.

    Sections are merged field by field; all else, lists too, is replaced. Paths in an extended
    recipe stay relative to that recipe.

    Raises:
        RecipeError: ``extends`` is not a path, or the chain is circular.
    """
    layers = [(file, tree) for file, tree in _chain(path, read_file)]
    merged: Tree = {}
    for file, tree in reversed(layers):
        merged = over(merged, _moved(tree, file.parent, path.parent))
    merged.pop(FIELD, None)
    return merged


def sha256(path: Path, read_file: Callable[[Path], Tree]) -> str:
    """Return the hash of the recipe's file; where it extends others, that of the list of all
    hashes.
    """
    hashes = [file_sha256(file) for file, _ in _chain(path, read_file)]
    return hashes[0] if len(hashes) == 1 else lines_sha256(hashes)


def _chain(path: Path, read_file: Callable[[Path], Tree]) -> Iterator[tuple[Path, Tree]]:
    """Yield the recipe, the one that it extends, and so on."""
    seen: list[Path] = []
    following: Path | None = path
    while following is not None:
        seen.append(following.resolve())
        if len(seen) > LONGEST or seen[-1] in seen[:-1]:
            raise RecipeError(
                f"{following}: {FIELD} is circular, or leads over more than {LONGEST} "
                "recipes; write all that it needs into one of them"
            )
        tree = read_file(following)
        yield following, tree
        following = _next(following, tree)


def _next(path: Path, tree: Tree) -> Path | None:
    named = tree.get(FIELD)
    if named is None:
        return None
    if not isinstance(named, str) or not named:
        raise RecipeError(
            f"{path}: {FIELD}: is {named!r}; expected the path of a recipe, relative to this one"
        )
    return path.parent / named


def over(below: Mapping[str, Any], above: Mapping[str, Any]) -> Tree:
    """Return one tree laid over another: sections are merged field by field, all else replaced."""
    merged = dict(below)
    for name, value in above.items():
        there = merged.get(name)
        if isinstance(there, dict) and isinstance(value, dict):
            merged[name] = over(there, value)
        else:
            merged[name] = value
    return merged


def _moved(tree: Tree, home: Path, here: Path) -> Tree:
    """Return the tree of a recipe in folder ``home``, with its paths relative to ``here``."""
    if home.resolve() == here.resolve():
        return tree
    moved = dict(tree)
    for section, names in PLACES.items():
        if isinstance(fields := tree.get(section), dict):
            moved[section] = fields | {
                name: os.path.relpath(home.resolve() / fields[name], here.resolve())
                for name in names
                if isinstance(fields.get(name), str)
            }
    return moved
