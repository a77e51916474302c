"""One value of a record: what it may be written as, and the reason when it may not be.

bytes      base64 in text (RFC 4648, section 4, padded); as they are in Parquet, tar and whole files
list       a JSON array of finite numbers; in Parquet a list of numbers
timestamp  ISO 8601 with a calendar date: ``2013-01-31``, ``2013-01-31T12:00:00.25+02:00``; without
           an offset it is UTC. What is finer than a microsecond is cut off.
"""

import base64
import binascii
import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import Any

ISO_8601 = re.compile(
    r"\d{4}-\d\d-\d\d(?:[Tt ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:[Zz]|[+-]\d\d(?::?\d\d)?)?)?",
    re.ASCII,
)
BEGIN = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


class BadRecord(ValueError):
    """Why a record cannot be used. Stays inside the readers: it becomes a ``Bad``."""


class Integer(str):
    """An integer as JSON writes it: it may have any number of digits."""

    __slots__ = ()


def decoded(raw: bytes, what: str = "the record is") -> str:
    """The text; ``BadRecord`` where it is not UTF-8."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadRecord(f"{what} not UTF-8 (at byte {error.start + 1})") from None


def shown(value: Any) -> str:
    """The value, in few characters and without any that cannot be encoded."""
    told = str(value) if isinstance(value, float | Integer) else ascii(value)
    return told if len(told) <= 40 else f"{told[:40]}…"


def content(name: str, text: str) -> bytes:
    """The bytes that base64 stands for."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadRecord(
            f"column {name!r} is {shown(text)}, expected base64, padded (RFC 4648): {error}"
        ) from None


def moment(name: str, text: str) -> int:
    """Microseconds since 1970 in UTC."""
    stripped = text.strip(" \t")
    try:
        if not ISO_8601.fullmatch(stripped):
            raise ValueError("it is not written so")
        found = datetime.fromisoformat(stripped.upper())
        return ((found if found.tzinfo else found.replace(tzinfo=UTC)) - BEGIN) // MICROSECOND
    except (ValueError, OverflowError) as error:
        raise BadRecord(
            f"column {name!r} is {shown(text)}, expected a time in ISO 8601 such as "
            f"2013-01-31T12:00:00Z: {error}"
        ) from None


def numbers(name: str, length: int | None, values: Sequence[Any]) -> list[float]:
    """A list of finite numbers, of this length if one is given."""
    found = [_element(name, place, value) for place, value in enumerate(values)]
    if length is not None and len(found) != length:
        raise BadRecord(wrong_length(name, len(found), length))
    return found


def array(name: str, length: int | None, text: str) -> list[float]:
    """The same from a JSON array."""
    try:
        values = json.loads(text, parse_int=Integer)
    except (ValueError, RecursionError):
        values = None
    if type(values) is not list:
        raise BadRecord(f"column {name!r} is {shown(text)}, expected a JSON array of numbers")
    return numbers(name, length, values)


def _element(name: str, place: int, value: Any) -> float:
    number = float(value) if isinstance(value, float | Integer) else None
    if number is None or not isfinite(number):
        raise BadRecord(no_number(name, place, value))
    return number


def no_number(name: str, place: int, value: Any) -> str:
    """Why such an element makes a record bad."""
    return f"column {name!r} holds {shown(value)} at place {place}, expected a finite number"


def wrong_length(name: str, found: int, expected: int) -> str:
    """Why such a list makes a record bad."""
    return f"column {name!r} has {found} numbers, expected {expected}"
