"""Manifests as they are read: one row per shard, one array per column.

100,000 shards are opened in the time that ``json.loads`` takes for their manifest, so no value is
touched one by one: a column is checked as a whole, and only when it is wrong its first wrong value
is searched for. pydantic, value by value, took four times as long.
"""

import binascii
import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import ValidationError
from pydantic_core import from_json

from training.data.manifest import BLANK, FORMAT, SUFFIX, Field, Head, Raw, Source
from trainyard.common.errors import DataError

TABLES = {
    "raw": tuple(Raw.model_fields),
    "sources": tuple(Source.model_fields),
    "values": ("bytes", "sha256"),
}
TABLES["shards"] = (*TABLES["values"], "file", "samples", "source", "values")


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """One manifest, checked, with its tables as columns."""

    split: str
    fields: Mapping[str, Field]
    workload: Mapping[str, Any]
    raw: Mapping[str, list]
    """Fields of ``Raw``, each as a column."""
    units: int | None
    """Rows of ``sources`` in all manifests together."""
    sources: Mapping[str, list]
    """Fields of ``Source``, each as a column."""
    files: np.ndarray
    """Names of the shards' files: bytes, shape (shards,)."""
    samples: np.ndarray
    """Samples in each shard, int64."""
    source: np.ndarray
    """Row of ``sources`` that each shard comes from, int64."""
    bytes: np.ndarray
    """Sizes of each shard's files, shape (shards, 1 + variable-width fields), int64."""
    sha256: np.ndarray
    """Hashes of each shard's files, shape (shards, 1 + variable-width fields), 32 bytes each
    (V32)."""


class _WrongValueError(ValueError):
    """A value in a manifest is not what it has to be."""

    def __init__(self, field: str, value: object, expectation: str) -> None:
        text = repr(value)
        super().__init__(f"{field}: {text[:80]}{'…' * (len(text) > 80)}; expected {expectation}")


def parse_manifest(name: str, content: bytes) -> Columns:
    """Parse a manifest from its JSON.

    Raises:
        DataError: the manifest is damaged, or of another format.
    """
    try:
        return _columns(_parse_json(content))
    except ValidationError as error:
        first = error.errors()[0]
        reason = f"{'.'.join(map(str, first['loc'])) or 'file'}: {first['msg']}"
        if first["loc"] == ("format",):
            reason = f"format: is {first['input']!r}; this version reads {FORMAT}"
    except _WrongValueError as error:
        reason = str(error)
    raise DataError(f"{name}: {reason}; shard the data again") from None


def _parse_json(content: bytes) -> Any:
    try:
        # Hardly any string repeats: looking each up in a cache takes as long as parsing it.
        return from_json(content, cache_strings="none")
    except ValueError as error:
        raise _WrongValueError("file", bytes(content[:40]), f"JSON ({error})") from None


def _columns(document: Any) -> Columns:
    """Check a parsed manifest, and return it as columns.

    Raises:
        ValidationError: a field of ``Head`` is wrong.
        _Wrong: a value in a table is wrong.
    """
    head = Head.model_validate(document)
    sources, shards = _table("sources", head.sources), _table("shards", head.shards)
    variable = [name for name, field in head.fields.items() if field.shape is None]
    values = shards["values"]
    _check_keys("shards.values", values, variable)
    places = {"shards": shards} | {
        f"shards.values.{name}": _table("values", values[name], f"shards.values.{name}")
        for name in variable
    }
    files = _names(shards["file"])
    count = len(files)
    columns = Columns(
        split=head.split,
        fields=head.fields,
        workload=head.workload,
        raw=_check_table("raw", _table("raw", head.raw)),
        units=head.units,
        sources=_sources(sources),
        files=files,
        samples=_numbers("shards.samples", shards["samples"], count),
        source=_numbers("shards.source", shards["source"], count),
        bytes=_stack_columns(
            [_numbers(f"{p}.bytes", t["bytes"], count) for p, t in places.items()]
        ),
        sha256=_stack_columns(
            [_hashes(f"{p}.sha256", t["sha256"], count) for p, t in places.items()]
        ),
    )
    if count and columns.source.max() >= len(columns.sources["name"]):
        expectation = f"a row of sources, of which there are {len(columns.sources['name'])}"
        raise _WrongValueError("shards.source", int(columns.source.max()), expectation)
    return columns


def _table(kind: str, value: Any, place: str | None = None) -> dict[str, Any]:
    """Return a table; check that it is an object with exactly the keys of its kind."""
    _check_keys(place or kind, value, TABLES[kind])
    return value


def _check_keys(place: str, value: Any, keys: Collection[str]) -> None:
    expectation = (
        f"an object with the keys {', '.join(keys)}" if keys else "an object without a key"
    )
    if not isinstance(value, dict):
        raise _WrongValueError(place, value, expectation)
    for key in value.keys() ^ set(keys):
        raise _WrongValueError(f"{place}.{key}", value.get(key, "nothing"), expectation)


def _check_table(kind: str, table: Mapping[str, Any]) -> Mapping[str, list]:
    """Return a table of names and counts, checked."""
    names = _check_column(f"{kind}.name", table["name"], str)
    for name in table.keys() - {"name", "statistics"}:
        _numbers(f"{kind}.{name}", table[name], len(names))
    return table


def _sources(table: Mapping[str, Any]) -> Mapping[str, list]:
    names = _check_table("sources", table)["name"]
    statistics = _check_column("sources.statistics", table["statistics"], dict)
    _check_length("sources.statistics", statistics, len(names))
    return table


def _check_column(place: str, column: Any, kind: type) -> list:
    """Return the column; check that it is a list with values of this type only."""
    if not isinstance(column, list):
        raise _WrongValueError(place, column, "a list")
    if not set(map(type, column)) <= {kind}:
        row = next(row for row, value in enumerate(column) if type(value) is not kind)
        raise _WrongValueError(
            f"{place}[{row}]", column[row], "a string" if kind is str else "an object"
        )
    return column


def _numbers(place: str, column: Any, count: int) -> np.ndarray:
    """Return ``count`` non-negative integers as int64."""
    if not isinstance(column, list):
        raise _WrongValueError(place, column, "a list")
    _check_length(place, column, count)
    try:
        buffer = struct.pack(f"={count}q", *column)  # half the time of np.array, and no 1.5, no "1"
    except struct.error:
        row = next(
            row
            for row, value in enumerate(column)
            if not (isinstance(value, int) and -(2**63) <= value < 2**63)
        )
        raise _WrongValueError(
            f"{place}[{row}]", column[row], "a whole number below 2^63"
        ) from None
    numbers = np.frombuffer(buffer, np.int64)
    if count and numbers.min() < 0:
        row = int(numbers.argmin())
        raise _WrongValueError(f"{place}[{row}]", column[row], "a number from 0 up")
    return numbers


def _hashes(place: str, text: Any, count: int) -> np.ndarray:
    """Parse hashes given as one string of hexadecimal digits: shape (count,), V32."""
    if not isinstance(text, str):
        raise _WrongValueError(place, text, "a string")
    if len(text) != 64 * count:
        raise _WrongValueError(
            place, f"{len(text)} digits", f"{64 * count}: 64 for each of the {count} shards"
        )
    try:
        raw = binascii.unhexlify(text)  # unlike bytes.fromhex it does not skip white space
    except ValueError as error:
        raise _WrongValueError(place, text, f"nothing but hexadecimal digits ({error})") from None
    return np.frombuffer(raw, "V32")


def _names(text: Any) -> np.ndarray:
    """Parse shards' names separated by blanks: bytes, shape (n,).

    A name must point to a file beside the manifest, nowhere else.
    """
    expectation = f"names like 0123-00000{SUFFIX} with a blank between them, no folder"
    if not isinstance(text, str):
        raise _WrongValueError("shards.file", text, expectation)
    if not text:
        return np.empty(0, "S1")
    if not text.isascii() or "/" in text or "\\" in text:
        names = text.split(BLANK)
        wrong = next(n for n in names if not n.isascii() or "/" in n or "\\" in n)
        raise _WrongValueError("shards.file", wrong, expectation)
    letters = text.encode()
    raw = np.frombuffer(letters, np.uint8)
    ends = np.append(np.flatnonzero(raw == ord(BLANK)), len(raw))
    widths = np.diff(ends, prepend=-1) - 1
    # Before its suffix a name has at least one letter.
    if widths.min() <= len(SUFFIX):
        raise _WrongValueError("shards.file", text.split(BLANK)[int(widths.argmin())], expectation)
    fours = np.ndarray(len(raw) - 3, "<u4", letters, strides=(1,))  # four letters, from any on
    good = fours[ends - len(SUFFIX)] == int.from_bytes(SUFFIX.encode(), "little")
    if not good.all():
        raise _WrongValueError("shards.file", text.split(BLANK)[int(good.argmin())], expectation)
    # Below the blank lie the control characters, line breaks among them.
    if raw.min() < ord(BLANK):
        raise _WrongValueError("shards.file", chr(raw.min()), expectation)
    width = int(widths.max())
    # Names of one width, as a writer gives them, are views into the text.
    if widths.min() < width:
        return np.array(text.split(BLANK), "S")
    return np.ndarray(len(ends), f"S{width}", letters, strides=(width + 1,))  # no copy


def _check_length(place: str, column: list, count: int) -> None:
    if len(column) != count:
        raise _WrongValueError(
            place, f"{len(column)} values", f"{count}: a table's columns are of one length"
        )


def _stack_columns(columns: list[np.ndarray]) -> np.ndarray:
    """Stack columns of shape (n,) into one array of shape (n, columns)."""
    return columns[0][:, None] if len(columns) == 1 else np.stack(columns, axis=1)
