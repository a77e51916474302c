"""Arithmetic on 64 bits that spreads numbers and names far apart; NumPy alone.

Apart: the shard step and the loop must agree on it.
"""

import numpy as np

ODD = np.uint64(0x9E3779B97F4A7C15)
"""2^64 / golden ratio; its multiples spread neighbours far apart (SplitMix64; Steele et al.
2014)."""

MULTIPLIERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


def mix_bits(values: np.ndarray) -> np.ndarray:
    """Return a bijection of uint64; every bit depends on every other (Steele et al. 2014)."""
    for shift, multiplier in zip((30, 27), MULTIPLIERS, strict=True):
        values = (values ^ (values >> np.uint64(shift))) * multiplier
    return values ^ (values >> np.uint64(31))


def chain_hashes(hashes: np.ndarray, words: np.ndarray) -> np.ndarray:
    """Return hashes of sequences extended by one word, uint64 (n,), from those of the sequences."""
    return mix_bits(hashes ^ words) + ODD
