"""Pipeline parameters: their types, and the values that they have in an execution."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from trainyard.language.expressions import Value

TYPES = {"String": (str,), "Integer": (int,), "Float": (int, float), "Boolean": (bool,)}
"""Parameter type → Python types of its values. ``True`` is an int in Python, not in JSON."""
UNTYPED = "String"
"""The type of a parameter that has none, by AWS's JSON schema of definitions."""


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError
    return value


_READ: Mapping[str, Callable[[str], Value]] = {
    "String": str,
    "Integer": int,
    "Float": _float,
    "Boolean": lambda text: {"true": True, "false": False}[text.lower()],
}


def is_a(value: Any, kind: str) -> bool:
    """Whether a definition may give ``value`` to a parameter of that type."""
    return isinstance(value, TYPES[kind]) and (kind == "Boolean" or not isinstance(value, bool))


def parse(text: str, kind: str) -> Value:
    """A value that was given as text, in its type.

    Raises:
        ValueError: it is none of that type; NaN and infinity, which no JSON can say, are no Float.
    """
    try:
        return _READ[kind](text)
    except (KeyError, ValueError):
        raise ValueError(f"{text!r} is no {kind}") from None


def as_given(value: Value) -> str:
    """A value as text, as ListPipelineParametersForExecution shows it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def declared(document: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Every parameter of a valid definition by its name."""
    return {entry["Name"]: entry for entry in document.get("Parameters") or ()}


def values(document: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, Any]:
    """Parameter → its value: of ``given``, which are texts, else its default; None without one.

    Raises:
        ValueError: a given one is not of the parameter's type.
    """
    return {
        name: parse(given[name], entry.get("Type", UNTYPED))
        if name in given
        else entry.get("DefaultValue")
        for name, entry in declared(document).items()
    }
