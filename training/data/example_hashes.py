"""Hashes that identify examples by content: 64 bits, the same on every machine, in every run."""

from collections.abc import Mapping
from hashlib import blake2b
from itertools import pairwise

import numpy as np

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
            out = chained(out, _digests(rows, samples[f"{name}_offsets"]))
            continue
        for word in _words(rows.reshape(len(rows), -1)).T:
            out = chained(out, word)
    return mixed(out).view(np.int64)


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
        padded = np.zeros((len(raw), width), np.uint8)
        padded[:, : raw.shape[1]] = raw
        raw = padded
    return raw.view("<u8")


ODD = np.uint64(0x9E3779B97F4A7C15)
"""2^64 / golden ratio; its multiples spread neighbours far apart (SplitMix64; Steele et al.
2014)."""

MULTIPLIERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


def mixed(values: np.ndarray) -> np.ndarray:
    """Return a bijection of uint64; every bit depends on every other (Steele et al. 2014)."""
    for shift, multiplier in zip((30, 27), MULTIPLIERS, strict=True):
        values = (values ^ (values >> np.uint64(shift))) * multiplier
    return values ^ (values >> np.uint64(31))


def chained(hashes: np.ndarray, words: np.ndarray) -> np.ndarray:
    """Return hashes of sequences extended by one word, uint64 (n,), from those of the sequences."""
    return mixed(hashes ^ words) + ODD
