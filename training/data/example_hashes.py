"""Hashes that identify examples by content: 64 bits, the same on every machine, in every run.

Apart: packing uses it without torch.
"""

from collections.abc import Mapping
from hashlib import blake2b
from itertools import pairwise

import numpy as np

from training.data.bit_mixing import chain_hashes, mix_bits
from training.data.manifest import Field, Samples
from training.data.shard_writer import count_of


def sample_hashes(samples: Samples, fields: Mapping[str, Field]) -> np.ndarray:
    """Hash each sample's bytes over all its fields: int64 (n,).

    Two samples that differ have the same hash with a probability of 2^-64: among 10^8 test and 10^9
    train samples one pair is expected to be taken for equal with a probability of half a percent.
    """
    out = np.zeros(count_of(samples, fields), np.uint64)
    for name, field in fields.items():
        rows = np.ascontiguousarray(samples[name], np.dtype(field.dtype).newbyteorder("<"))
        if field.shape is None:
            out = chain_hashes(out, _digests(rows, samples[f"{name}_offsets"]))
            continue
        for word in _words(rows.reshape(len(rows), -1)).T:
            out = chain_hashes(out, word)
    return mix_bits(out).view(np.int64)


def _digests(values: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return the first 64 bits of each sample's BLAKE2b hash, uint64 (n,)."""
    raw = values.view(np.uint8).data
    bounds = (offsets * values.itemsize).tolist()
    digests = (blake2b(raw[a:b], digest_size=8).digest() for a, b in pairwise(bounds))
    return np.frombuffer(b"".join(digests), "<u8")


def _words(rows: np.ndarray) -> np.ndarray:
    """Return the bytes of each row as uint64, padded with zeros: shape (n, words)."""
    raw = rows.view(np.uint8).reshape(len(rows), -1)
    width = -(-raw.shape[1] // 8) * 8
    if width != raw.shape[1]:
        buffer = np.zeros((len(raw), width), np.uint8)
        buffer[:, : raw.shape[1]] = raw
        raw = buffer
    return raw.view("<u8")
