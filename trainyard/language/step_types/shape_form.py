"""Shapes in botocore's form, for structures that no service model describes."""

from collections.abc import Mapping
from typing import Any

Body = Mapping[str, Any]

STRING: Body = {"type": "string"}
BOOLEAN: Body = {"type": "boolean"}
INTEGER: Body = {"type": "integer"}
ANYTHING: Body = {"type": "any"}
NULLABLE_STRING: Body = {"type": "string", "nullable": True}
NULLABLE_BOOLEAN: Body = {"type": "boolean", "nullable": True}


def structure(*required_names: str, **members: Any) -> dict[str, Any]:
    """Return a structure; ``required`` are names of members."""
    return {"type": "structure", "members": members, "required": list(required_names)}


def list_of(member: Body, **limits: int) -> dict[str, Any]:
    """Return a list; ``limits`` are min and max."""
    return {"type": "list", "member": member, **limits}


def map_of(value: Body) -> dict[str, Any]:
    """Return a map with string keys."""
    return {"type": "map", "key": STRING, "value": value}


def one_of(*values: str) -> dict[str, Any]:
    """Return a string with an enum."""
    return {"type": "string", "enum": list(values)}


def number(kind: str, least: float, most: float | None = None) -> dict[str, Any]:
    """Return an ``integer`` or a ``float`` within bounds."""
    return {"type": kind, "min": least, **({} if most is None else {"max": most})}
