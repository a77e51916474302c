"""The part of JSONPath that DataProcessing's filters have.

``$``, ``.name``, ``.*``, ``['a','b']``, ``[*]``, ``[1,3]``, ``[-1]``, ``[2:5]``, ``[0,5:]``:
developer guide, "Associate Prediction Results with Input Records", supported JSONPath operators.
"""

import re
from collections.abc import Callable
from typing import Any

Filter = Callable[[Any], Any]
LIMIT = 63  # characters: botocore's JsonPath
_PART = re.compile(
    r"\.?\[\s*(?P<inside>(?:'[^']*'|\"[^\"]*\"|[^\]'\"])*)\s*\]|\.(?P<name>\*|[^.\[\]\s]+)"
)
_NAMES = re.compile(r"""(?:'[^']*'|"[^"]*")(?:\s*,\s*(?:'[^']*'|"[^"]*"))*""")
_QUOTED = re.compile(r"""'([^']*)'|"([^"]*)\"""")
_NUMBER = re.compile(r"-?\d+")
_SLICE = re.compile(r"(-?\d+)?\s*:\s*(-?\d+)?")


class PathError(ValueError):
    """The path is none, or does not lead anywhere in a record; the message says which."""


def compiled(path: str) -> Filter:
    """What the path takes of a record. Raises :class:`PathError`, as its result does."""
    if not path.startswith("$") or len(path) > LIMIT:
        raise PathError(f"{path!r}: expected a JSONPath of at most {LIMIT} characters, '$...'")
    steps, at = [], 1
    while at < len(path):
        match = _PART.match(path, at)
        if not match:
            raise PathError(f"{path!r}: {path[at:]!r} is no operator that a filter has")
        steps.append(_step(path, match))
        at = match.end()

    def apply(record: Any) -> Any:
        for step in steps:
            record = step(record)
        return record

    return apply


def _step(path: str, match: re.Match[str]) -> Filter:
    inside = match["inside"]
    if match["name"] == "*" or (inside is not None and inside.strip() == "*"):
        return _all
    if match["name"]:
        return lambda record: _member(record, match["name"])
    inside = inside.strip()
    if _NAMES.fullmatch(inside):
        names = [single or double for single, double in _QUOTED.findall(inside)]
        return lambda record: _members(record, names)
    picks = [part.strip() for part in inside.split(",")]
    if not all(_NUMBER.fullmatch(pick) or _SLICE.fullmatch(pick) for pick in picks):
        raise PathError(f"{path!r}: [{inside}] is neither names in quotes nor numbers")
    return lambda record: _elements(record, picks)


def _all(record: Any) -> Any:
    if isinstance(record, dict):
        return list(record.values())
    if isinstance(record, list):
        return record
    raise PathError(f"* of {_shown(record)}, which is neither an object nor an array")


def _member(record: Any, name: str) -> Any:
    if not isinstance(record, dict) or name not in record:
        raise PathError(f"there is no {name!r} in {_shown(record)}")
    return record[name]


def _members(record: Any, names: list[str]) -> Any:
    if len(names) == 1:
        return _member(record, names[0])
    return {name: _member(record, name) for name in names}


def _elements(record: Any, picks: list[str]) -> Any:
    if not isinstance(record, list):
        raise PathError(f"[{','.join(picks)}] of {_shown(record)}, which is no array")
    if len(picks) == 1 and ":" not in picks[0]:
        return _element(record, picks[0])
    found: list[Any] = []
    for pick in picks:
        if match := _SLICE.fullmatch(pick):
            low, high = (int(text) if text else None for text in match.groups())
            found += record[low:high]
        else:
            found.append(_element(record, pick))
    return found


def _element(record: list, pick: str) -> Any:
    try:
        return record[int(pick)]
    except IndexError:
        raise PathError(f"[{pick}] is outside an array of {len(record)}") from None


def _shown(record: Any) -> str:
    text = repr(record)
    return text if len(text) < 80 else f"{text[:77]}..."
