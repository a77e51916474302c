"""A call as IAM sees it: an action on a resource, with the condition keys that are known of it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Call:
    """One action on one resource."""

    action: str
    resource: str = "*"
    context: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Condition key, in lower case → values."""

    known_keys: frozenset[str] = frozenset()
    """Keys of the service that the request would have here, if it had them at all."""


def values(**keys: Any) -> dict[str, tuple[str, ...]]:
    """Return condition keys, whose names stand with ``__`` for the colon, that have a value."""
    return {
        name.replace("__", ":"): texts(value) for name, value in keys.items() if value is not None
    }


def texts(value: Any) -> tuple[str, ...]:
    """Return a request's value as IAM's texts: ``true`` for True, each item of a list."""
    several: Iterable[Any] = value if isinstance(value, list | tuple) else [value]
    return tuple(
        str(element).lower() if isinstance(element, bool) else str(element) for element in several
    )
