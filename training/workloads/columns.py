"""What a workload says of a column of the raw records; no torch, the shard step reads it."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the raw records."""

    kind: Literal["text", "category", "number", "bytes", "list", "timestamp"]
    """``text``: a string. ``category``: a string, integer or boolean, given as a
    string, in a ``pa.DictionaryArray``. ``number``: given as float64. ``bytes``: an image, a sound,
    given as ``pa.binary()``. ``list``: finite numbers, given as a list of float64. ``timestamp``:
    a moment, given as int64: microseconds since 1970 in UTC."""

    required: bool = True
    """Whether a record without a value is bad, and quarantined."""

    limit: float = math.inf
    """A number of this magnitude or more makes its record bad: the samples cannot hold it."""

    length: int | None = None
    """How many numbers a ``list`` has; another one makes its record bad. None: any number."""

    refuse: Callable[[bytes], str | None] | None = None
    """Of ``bytes``: why a value is of no use (``is cut off``), None when it is; then its record is
    bad, and quarantined before anything is trained on it."""

    dtype: Literal[
        "uint8", "uint16", "uint32", "int8", "int16", "int32", "int64", "float32", "float64"
    ] = "float32"
    """As what ``by_columns`` stores a number, or those of a list."""
