"""Mutations of the valid definitions that nobody chose."""

import copy
from collections.abc import Iterator
from typing import Any

from tests.trainyard.validate.faults import BASES, inside, load
from trainyard.language.expressions import is_expression

OTHER = {str: 7, int: "7", float: "0.5", bool: "yes", dict: [], list: {}, type(None): 7}
"""A value of another type."""
MAPS = {
    "ApplicationConfig",  # of EMR Serverless: no botocore shape with this form
    "CustomerMetadataProperties",
    "Environment",
    "HyperParameters",
    "StaticHyperParameters",
}
FREE = ("Lambda", "Callback")
"""Step types whose Arguments are what the user likes."""
Path = tuple[str | int, ...]


def nodes(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every member and item below the top level."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        yield (*path, key), item
        if isinstance(item, dict | list):
            yield from nodes(item, (*path, key))


def mutate(base: str, kind: str, path: Path) -> dict:
    """The definition ``base`` with one mutation."""
    document = copy.deepcopy(load(base))
    *before, key = path
    holder = inside(document, before)
    if kind == "rename":
        holder[_typo(str(key))] = holder.pop(key)
    else:
        holder[key] = _typo(holder[key]) if kind == "misspell" else OTHER[type(holder[key])]
    return document


def _typo(text: str) -> str:
    """Two letters in the middle change places, or one is doubled where they are the same."""
    middle = max(len(text) // 2, 1)
    swapped = text[: middle - 1] + text[middle : middle + 1] + text[middle - 1] + text[middle + 1 :]
    return swapped if swapped != text else text[:middle] + text[middle - 1 :]


def mistakes(depth: int) -> Iterator[tuple[str, str, Path]]:
    """At every member of every request that the definitions make: its name misspelt, and a value of
    another type; and every reference misspelt.

    Left out is what is no mistake: names in maps, and a Lambda's own input. Of members of one type
    of step whose last ``depth`` names are the same, the first stands for all.
    """
    seen: set[tuple] = set()
    for base in BASES:
        for path, value in nodes(load(base)):
            for kind in _mistakes(base, path, value):
                names = [key for key in path if isinstance(key, str)]
                key = (kind, _type(base, path) if depth > 2 else "", *names[-depth:])
                if key not in seen or path[-1] == "Get":
                    seen.add(key)
                    yield base, kind, path


def _mistakes(base: str, path: Path, value: Any) -> Iterator[str]:
    """The kinds of mutation that make a mistake there: rename, retype or misspell."""
    if path[0] != "Steps" or "Arguments" not in path:
        return
    if path[-1] == "Get" and not str(value).startswith("ForEach"):
        yield "misspell"
    if _free(base, path) or any(isinstance(k, str) and k.startswith("Std:") for k in path[:-1]):
        return
    holder = next((k for k in reversed(path[:-1]) if isinstance(k, str)), "")
    if isinstance(path[-1], str) and holder not in MAPS and len(path[-1]) > 1:
        yield "rename"
    if path[-1] != "Get" and not is_expression(value) and not MAPS & set(path[:-2]):
        yield "retype"


def _free(base: str, path: Path) -> bool:
    """Inside what the user writes as they like."""
    return "ApplicationConfig" in path or (
        _type(base, path) in FREE and path[-1] not in ("Name", "Type", "Arguments")
    )


def _type(base: str, path: Path) -> str:
    """Type of the innermost step that ``path`` lies in."""
    value: Any = load(base)
    found = ""
    for key in path:
        value = value[key]
        if isinstance(value, dict) and isinstance(value.get("Arguments"), dict):
            found = value["Type"]
    return found
