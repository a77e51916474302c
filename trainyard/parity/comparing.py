"""Two files of :mod:`trainyard.parity`, compared: every difference is a line."""

from collections.abc import Iterator
from typing import Any


def differences(one: dict[str, Any], other: dict[str, Any]) -> Iterator[str]:
    """``case: place: this, there that`` for each; texts and lists are compared as they are."""
    for name in sorted({*one["cases"], *other["cases"]}):
        yield from _compared(name, one["cases"].get(name), other["cases"].get(name))


def _compared(place: str, one: Any, other: Any) -> Iterator[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted({*one, *other}):
            yield from _compared(f"{place}.{key}", one.get(key), other.get(key))
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from _compared(f"{place}[{index}]", left, right)
    elif one != other:
        yield f"{place}: {one!r}, there {other!r}"
