"""Compute 64-bit hashes of records, column by column, the same on every machine and in every run.

Values are hashed as pandas does it: SipHash-2-4 with a fixed key for strings, and a bijective mix
of the bits for numbers. Long strings, bytes and lists of numbers are hashed with SHA-256, which is
three times as fast on long strings.
"""

import hashlib
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pandas.util import hash_array

from steps.shard.shard_plan import SPLITS
from training.data.bit_mixing import ODD

LONG = 512  # bytes; from this length on SHA-256 is faster than SipHash
CATEGORY_BYTES = 64  # bytes; shorter strings often repeat, so each distinct one is hashed once
NULL = ODD  # the hash of a missing value


def combine_hashes(columns: Sequence[np.ndarray]) -> np.ndarray:
    """Combine the hashes of columns, uint64 (n,) each, into one hash per record, uint64 (n,).

    Records that are equal in these columns have equal hashes. For a single column, the hashes are
    returned unchanged. Two different records have the same hash with a probability of 2^-64.
    """
    out = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        out = out * ODD ^ column
    return out


def hash_column(column: pa.Array) -> np.ndarray:
    """Return the hash of each value of a column, uint64 (n,), also of missing values and NaN."""
    if pa.types.is_floating(column.type):
        return hash_array(column.fill_null(float("nan")).to_numpy(zero_copy_only=False))
    if pa.types.is_integer(column.type):
        return _hash_nulls(hash_array(column.fill_null(0).to_numpy()), column)
    if pa.types.is_list(column.type):
        return _hash_nulls(_compute_digests(*_view_list_bytes(column)), column)
    if pa.types.is_binary(column.type):
        return _hash_nulls(_compute_digests(*_view_bytes(column)), column)
    if pa.types.is_string(column.type) and column.nbytes < CATEGORY_BYTES * len(column):
        column = column.dictionary_encode()
    if pa.types.is_dictionary(column.type):
        # The hash of a missing value is appended, and used for rows without an index.
        distinct = np.append(_hash_strings(column.dictionary), NULL)
        return distinct[column.indices.fill_null(len(distinct) - 1).to_numpy()]
    return _hash_nulls(_hash_strings(column.fill_null("")), column)


def _hash_nulls(hashes: np.ndarray, column: pa.Array) -> np.ndarray:
    """Set the hashes of missing values to NULL, in place; return the hashes."""
    hashes[column.is_null().to_numpy(zero_copy_only=False)] = NULL
    return hashes


def _hash_strings(column: pa.Array) -> np.ndarray:
    """Return the hashes of strings: SHA-256 for those of LONG bytes or more, otherwise SipHash."""
    long = pc.greater_equal(pc.binary_length(column), LONG)
    is_long = long.to_numpy(zero_copy_only=False)
    out = np.empty(len(column), np.uint64)
    short = column if not is_long.any() else column.filter(pc.invert(long))
    # categorize=False, because looking for equal strings is useless here: they are distinct or
    # rarely equal.
    out[~is_long] = hash_array(short.to_numpy(zero_copy_only=False), categorize=False)
    if is_long.any():
        out[is_long] = _compute_digests(*_view_bytes(column.filter(long)))
    return out


def _view_bytes(column: pa.Array) -> tuple[np.ndarray, memoryview]:
    """Return (n + 1 offsets that separate the values, the memory that contains the values)."""
    binary = column.cast(pa.large_binary())
    _, offsets, values = binary.buffers()
    ends = np.frombuffer(offsets, np.int64)[binary.offset : binary.offset + len(binary) + 1]
    return ends, memoryview(values or b"")


def _view_list_bytes(column: pa.ListArray) -> tuple[np.ndarray, memoryview]:
    """Return (offsets, memory) as ``_view_bytes``, for lists of numbers; null is an empty list."""
    widths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    values = column.flatten().to_numpy(zero_copy_only=False)
    # Little-endian, because the bytes of a number have to be the same on every machine.
    values = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    return values.itemsize * np.concatenate(([0], np.cumsum(widths))), values.view(np.uint8).data


def _compute_digests(ends: np.ndarray, content: memoryview) -> np.ndarray:
    """Return the first 8 bytes of each value's SHA-256; ``ends``: offsets that separate values."""
    cuts = ends.tolist()
    digests = [hashlib.sha256(content[a:b]).digest()[:8] for a, b in zip(cuts, cuts[1:])]  # noqa: B905
    return np.frombuffer(bytearray().join(digests), "<u8")


# The split of a record follows from a hash of its key, never from its position.


def assign_splits(hashes: np.ndarray, validation_share: float, test_share: float) -> np.ndarray:
    """Return the split of each record, uint8 index into SPLITS, from its key's hash, uint64 (n,).

    The lowest hashes are the test split, and the next ones the validation split. So if the test
    share is raised, records move into the test split but never out of it.
    """
    test = int(test_share * 2.0**64)
    validation = int((test_share + validation_share) * 2.0**64)
    if not 0 <= test <= validation < 2**64:
        raise ValueError(f"shares {validation_share} and {test_share} leave nothing to train on")
    out = np.zeros(len(hashes), np.uint8)
    out[hashes < np.uint64(validation)] = 1
    out[hashes < np.uint64(test)] = 2
    return out


def compute_split(key: str | float, validation_share: float, test_share: float) -> str:
    """Return the name of the split that records with this key are assigned to."""
    hashes = hash_column(pa.array([key]))
    return SPLITS[assign_splits(hashes, validation_share, test_share)[0]]
