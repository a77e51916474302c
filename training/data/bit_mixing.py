"""64-bit hashing of numbers and names, with NumPy alone.

This is a separate module because the shard step and the training loop must compute the same hashes.
"""

import numpy as np

ODD = np.uint64(0x9E3779B97F4A7C15)
"""2^64 / golden ratio; its multiples spread neighbours far apart (SplitMix64; Steele et al.
2014)."""

MULTIPLIERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


def mix_bits(values: np.ndarray) -> np.ndarray:
    """Return a hash of each value, by a bijection of uint64 in which every bit depends on every
    other (Steele et al. 2014).
    """
    for shift, multiplier in zip((30, 27), MULTIPLIERS, strict=True):
        values = (values ^ (values >> np.uint64(shift))) * multiplier
    return values ^ (values >> np.uint64(31))


def chain_hashes(hashes: np.ndarray, words: np.ndarray) -> np.ndarray:
    """Append a word to each of n hashed sequences; return the new hashes, uint64 (n,)."""
    return mix_bits(hashes ^ words) + ODD
