"""Pipeline parameters: their types, and their values in an execution."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from trainyard.language.expressions import Value

TYPES = {"String": (str,), "Integer": (int,), "Float": (int, float), "Boolean": (bool,)}
"""Parameter type → Python types of its values. ``True`` is an int in Python, not in JSON."""
DEFAULT_TYPE = "String"
"""Type of a parameter without one, by AWS's JSON schema of definitions."""


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
    """Return whether a definition may give ``value`` to a parameter of that type."""
    return isinstance(value, TYPES[kind]) and (kind == "Boolean" or not isinstance(value, bool))


def parse(text: str, kind: str) -> Value:
    """Parse a value that was given as text.

    Raises: ValueError: it is not of that type; NaN and infinity, which JSON cannot express, are not
        Floats.
    """
    try:
        return _READ[kind](text)
    except (KeyError, ValueError):
        raise ValueError(f"{text!r} is not of type {kind}") from None


def as_given(value: Value) -> str:
    """Return a value as text, as ListPipelineParametersForExecution shows it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def index_parameters(document: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return every parameter of a valid definition by its name."""
    return {entry["Name"]: entry for entry in document.get("Parameters") or ()}


def values(document: Mapping[str, Any], texts: Mapping[str, str]) -> dict[str, Any]:
    """Return parameter → its value: from ``texts`` texts, else its default, else None.

    Raises:
        ValueError: a given value is not of the parameter's type.
    """
    return {
        name: parse(texts[name], entry.get("Type", DEFAULT_TYPE))
        if name in texts
        else entry.get("DefaultValue")
        for name, entry in index_parameters(document).items()
    }
