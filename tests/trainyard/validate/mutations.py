"""Mutations of valid definitions that nobody chose: where does validation look away?

python -m tests.trainyard.validate.mutations [SEED] [COUNT]
"""

import copy
import json
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from tests.trainyard.validate.faults import FOLDER, errors, load

BASES = sorted(path.stem for path in FOLDER.glob("*.json"))
KINDS = ("rename", "drop", "retype", "misspell", "double")
OTHER = {str: 7, int: "7", float: "0.5", bool: "yes", dict: [], list: {}, type(None): 7}
"""A value of another type."""
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
    inside: Any = document
    for key in path[:-1]:
        inside = inside[key]
    key = path[-1]
    if kind == "rename":
        inside[_typo(str(key))] = inside.pop(key)
    elif kind == "drop":
        del inside[key]
    elif kind == "retype":
        inside[key] = OTHER[type(inside[key])]
    elif kind == "misspell":
        inside[key] = _typo(inside[key])
    else:
        inside.append(inside[key])
    return document


def _typo(text: str) -> str:
    """Two letters in the middle change places, or one is doubled where they are the same."""
    middle = max(len(text) // 2, 1)
    swapped = text[: middle - 1] + text[middle : middle + 1] + text[middle - 1] + text[middle + 1 :]
    return swapped if swapped != text else text[:middle] + text[middle - 1 :]


def draw(seed: int, count: int) -> Iterator[tuple[str, str, Path]]:
    """``count`` mutations: base, kind and place, each kind equally often."""
    rng = random.Random(seed)
    places = {base: list(nodes(load(base))) for base in BASES}
    while count:
        base, kind = rng.choice(BASES), rng.choice(KINDS)
        path, value = rng.choice(places[base])
        if _possible(kind, path, value):
            count -= 1
            yield base, kind, path


def _possible(kind: str, path: Path, value: Any) -> bool:
    if path[0] in ("Metadata", "MlflowConfig"):
        return False
    if kind == "rename":
        return isinstance(path[-1], str) and len(path[-1]) > 1
    if kind == "misspell":
        return isinstance(value, str) and len(value) > 1
    return kind != "double" or (isinstance(path[-1], int) and isinstance(value, dict))


def shape(path: Path) -> str:
    """``path`` without indices, from the Arguments on, to count places alike."""
    names = [key for key in path if isinstance(key, str)]
    return ".".join(names[-3:])


def main(seed: int = 1, count: int = 3000) -> None:
    """Print the share caught of each kind, and where mutations most often pass."""
    drawn, caught, passed = Counter(), Counter(), defaultdict(Counter)
    for base, kind, path in draw(seed, count):
        drawn[kind] += 1
        if errors(json.dumps(mutate(base, kind, path))):
            caught[kind] += 1
        else:
            passed[kind][shape(path)] += 1
    for kind in KINDS:
        print(f"{kind:9} {caught[kind]:5} of {drawn[kind]:5} caught")
        for name, times in passed[kind].most_common(14):
            print(f"    {times:4} passed: {name}")
    print(f"all       {caught.total():5} of {drawn.total():5} caught")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
