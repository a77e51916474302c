"""Manifests as they are read: one row per shard, one array per column."""

import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic import Field as Constraint

from training.data.manifest import BLANK, FORMAT, NAME, SUFFIX, Field, Head
from trainyard.common.errors import DataError

Number = Annotated[int, Constraint(ge=0, lt=2**63)]


class _Table(BaseModel):
    """A table of a manifest, a list per column; values are not converted from other types."""

    model_config = ConfigDict(extra="forbid", strict=True)


class _Raw(_Table):
    name: list[str]
    records: list[Number]
    duplicates: list[Number]
    quarantined: list[Number]


class _Sources(_Table):
    name: list[str]
    records: list[Number]
    samples: list[Number]
    statistics: list[dict[str, Any]]


class _Files(_Table):
    bytes: list[Number]
    sha256: str


class _Shards(_Files):
    file: str
    samples: list[Number]
    source: list[Number]
    values: dict[str, _Files]


class _Document(Head):
    raw: _Raw
    sources: _Sources
    shards: _Shards


@dataclass(frozen=True, kw_only=True)
class ShardTable:
    """Shards as columns, with the manifests' information on their samples."""

    split: str
    fields: Mapping[str, Field]
    workload: Mapping[str, Any]
    raw: Mapping[str, Sequence]
    """Fields of ``Raw``, each as a column: what is said of the raw objects."""
    samples: np.ndarray
    """Samples in each shard, int64."""
    source: np.ndarray
    """Row of the table of units that each shard comes from, int64."""
    bytes: np.ndarray
    """Sizes of each shard's files, shape (shards, 1 + variable-width fields), int64."""
    sha256: np.ndarray
    """Hashes of each shard's files, shape (shards, 1 + variable-width fields), 32 bytes each
    (V32)."""


@dataclass(frozen=True, kw_only=True)
class Columns(ShardTable):
    """One manifest, checked, with its tables as columns."""

    units: int | None
    """Number of units in all manifests together; None if it is unknown."""
    sources: Mapping[str, list]
    """Fields of ``Source``, each as a column."""
    files: np.ndarray
    """Names of the shards' files: bytes, shape (shards,)."""


class _WrongValueError(ValueError):
    """A value in a manifest is wrong; the message names field, value and expectation."""

    def __init__(self, field: str, value: object, expectation: str) -> None:
        text = repr(value)
        super().__init__(f"{field}: {text[:80]}{'…' * (len(text) > 80)}; expected {expectation}")


def parse_manifest(name: str, content: bytes) -> Columns:
    """Parse a manifest from its JSON.

    Raises:
        DataError: the manifest is damaged, or of another format.
    """
    try:
        return _build_columns(_Document.model_validate_json(content))
    except ValidationError as error:
        first = error.errors()[0]
        reason = f"{'.'.join(map(str, first['loc'])) or 'file'}: {first['msg']}"
        if first["loc"] == ("format",):
            reason = f"format: is {first['input']!r}; this version reads {FORMAT}"
    except _WrongValueError as error:
        reason = str(error)
    raise DataError(f"{name}: {reason}; shard the data again") from None


def _build_columns(document: _Document) -> Columns:
    """Return a parsed manifest as columns.

    Raises:
        _WrongValueError: the columns of a table do not fit each other, or a text cannot be parsed
            as a list.
    """
    shards, variable = document.shards, [n for n, f in document.fields.items() if f.shape is None]
    if {*shards.values} != {*variable}:
        raise _WrongValueError("shards.values", [*shards.values], f"the fields {variable}")
    tables = {"shards": shards} | {f"shards.values.{n}": shards.values[n] for n in variable}
    raw, sources, files = dict(document.raw), dict(document.sources), _parse_names(shards.file)
    for section, table in (("raw", raw), ("sources", sources)):
        for name, column in table.items():
            _check_length(f"{section}.{name}", column, len(table["name"]))
    count = len(files)
    columns = Columns(
        split=document.split,
        fields=document.fields,
        workload=document.workload,
        raw=raw,
        units=document.units,
        sources=sources,
        files=files,
        samples=_convert_numbers("shards.samples", shards.samples, count),
        source=_convert_numbers("shards.source", shards.source, count),
        bytes=np.stack(
            [_convert_numbers(f"{p}.bytes", t.bytes, count) for p, t in tables.items()], 1
        ),
        sha256=np.stack(
            [_parse_hashes(f"{p}.sha256", t.sha256, count) for p, t in tables.items()], 1
        ),
    )
    if count and columns.source.max() >= len(sources["name"]):
        expectation = f"a row of sources, of which there are {len(sources['name'])}"
        raise _WrongValueError("shards.source", int(columns.source.max()), expectation)
    return columns


def _convert_numbers(path: str, column: Sequence[int], count: int) -> np.ndarray:
    _check_length(path, column, count)
    return np.array(column, np.int64)


def _parse_hashes(path: str, text: str, count: int) -> np.ndarray:
    """Parse hashes given as one string of hexadecimal digits: shape (count,), V32."""
    if len(text) != 64 * count:
        raise _WrongValueError(
            path, f"{len(text)} digits", f"{64 * count}: 64 for each of the {count} shards"
        )
    try:
        raw = binascii.unhexlify(text)  # unlike bytes.fromhex it does not skip white space
    except ValueError as error:
        raise _WrongValueError(path, text, f"nothing but hexadecimal digits ({error})") from None
    return np.frombuffer(raw, "V32")


def _parse_names(text: str) -> np.ndarray:
    """Parse the space-separated names of shards: bytes, shape (n,).

    A file has to be in the manifest's own folder, so a name with a slash or backslash is wrong.
    """
    names = text.split(BLANK) if text else []
    for name in names:
        if not NAME.fullmatch(name):
            expectation = f"names like 0123-00000{SUFFIX} with a space between them, no folder"
            raise _WrongValueError("shards.file", name, expectation)
    return np.array(names, "S")


def _check_length(path: str, column: Sequence[Any], count: int) -> None:
    if len(column) != count:
        raise _WrongValueError(
            path, f"{len(column)} values", f"{count}: all columns of a table have the same length"
        )
