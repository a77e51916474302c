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
        # Little-endian: the bytes that are hashed must be the same on every machine.
        rows = np.ascontiguousarray(samples[name], np.dtype(field.dtype).newbyteorder("<"))
        if field.shape is None:
            # 8 bytes of BLAKE2b a sample: chaining word by word needs as many words in each.
            raw = rows.view(np.uint8).data
            bounds = (samples[f"{name}_offsets"] * rows.itemsize).tolist()
            digests = (blake2b(raw[a:b], digest_size=8).digest() for a, b in pairwise(bounds))
            out = chain_hashes(out, np.frombuffer(b"".join(digests), "<u8"))
            continue
        for word in _words(rows.reshape(len(rows), -1)).T:
            out = chain_hashes(out, word)
    return mix_bits(out).view(np.int64)


def _words(rows: np.ndarray) -> np.ndarray:
    """Return the bytes of each row as uint64, padded with zeros: shape (n, words)."""
    raw = rows.view(np.uint8).reshape(len(rows), -1)
    width = -(-raw.shape[1] // 8) * 8
    if width != raw.shape[1]:
        buffer = np.zeros((len(raw), width), np.uint8)
        buffer[:, : raw.shape[1]] = raw
        raw = buffer
    return raw.view("<u8")
