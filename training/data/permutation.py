"""Permutations of 0 … n-1 that are computed where they are asked for, not stored.

A permutation is named by a text; the same name gives the same permutation on every machine and
with every version of numpy (numpy's own generators do not promise that: NEP 19).

``Feistel`` is written here because the library that has such a permutation, Grain's
``index_shuffle``, gives one index a call: 5 to 8 µs each (Grain 0.2.18), against 20 to 25 ns here.
"""

import functools
import hashlib
import math
from collections.abc import Callable, Sequence

import numpy as np

from training.data.mixing import MULTIPLIERS, ODD, mixed

Permutation = Callable[[np.ndarray], np.ndarray]
"""Positions, int64 of shape (k,), to the k numbers at these positions, int64."""

TABLE = 4096
"""Permutations up to this size are tables, 32 KB at most. A Feistel network over a tiny set needs
far more rounds: over the 120 permutations of 5 numbers its chi-square is still 13 times its degrees
of freedom after 12 rounds (400,000 keys)."""

ROUNDS = 8
"""Measured against true permutations over 4,097 to 1,000,000 numbers, in 6 to 500 permutations at
once: with 4 rounds neighbours at distance 1 are too many by up to 24 standard deviations, with 5 by
21, with 6 nothing is seen. Over 1,000 numbers (2,000 permutations) differences between neighbours
betray 6 rounds (p = 7e-7), and not 8. A pair of rounds makes what is seen rarer by √n."""

BLOCK = 1 << 14
"""Positions at once: their few arrays of 128 KB stay in a core's cache (20 ns each, not 33)."""

_HALF = np.uint64(32)


@functools.lru_cache(16)
def permutation(name: str, size: int) -> Permutation:
    """The permutation of 0 … size-1 with this name."""
    return table(name, size).take if size <= TABLE else Feistel(name, size)


def table(name: str, size: int) -> np.ndarray:
    """All of it: the order of ``size`` distinct random numbers (SplitMix64; Steele et al. 2014)."""
    key = np.frombuffer(hashlib.sha512(name.encode()).digest(), "<u8")[0]
    return np.argsort(mixed(np.arange(size, dtype=np.uint64) * ODD + key))


def tables(names: Sequence[str], size: int) -> np.ndarray:
    """Several at once, one a row: shape (names, size), int64."""
    digests = b"".join(hashlib.sha512(name.encode()).digest()[:8] for name in names)
    keys = np.frombuffer(digests, "<u8")[:, None]
    return np.argsort(mixed(np.arange(size, dtype=np.uint64) * ODD + keys), axis=1)


class Feistel:
    """A permutation of 0 … size-1 in constant memory.

    A Feistel network (Luby & Rackoff 1988, "How to construct pseudorandom permutations…") over
    pairs (quotient, remainder), with addition modulo the two sizes in turn: "Generalized-Feistel
    cipher" of Black & Rogaway 2002, "Ciphers with arbitrary finite domains". The pairs are a few
    more than ``size`` (by √size at most); from one that is too large the walk goes on to the next
    ("cycle walking", ibid.). Keys are the SHA-512 of the name.

    Args:
        rounds: 8 at most; fewer is for tests.
    """

    def __init__(self, name: str, size: int, rounds: int = ROUNDS) -> None:
        low = math.isqrt(size - 1) + 1
        low += low % 2  # if both are odd, only even permutations come out
        self._size = np.uint64(size)
        self._sizes = (np.uint64(low), np.uint64(-(-size // low)))
        self._keys = np.frombuffer(hashlib.sha512(name.encode()).digest(), "<u8")[:rounds]

    def __call__(self, positions: np.ndarray) -> np.ndarray:
        out = np.empty(len(positions), np.int64)
        for start in range(0, len(positions), BLOCK):
            block = slice(start, start + BLOCK)
            values = self._encrypt(positions[block].astype(np.uint64))
            while len(beyond := np.flatnonzero(values >= self._size)):
                values[beyond] = self._encrypt(values[beyond])
            out[block] = values.view(np.int64)
        return out

    def _encrypt(self, values: np.ndarray) -> np.ndarray:
        low, high = self._sizes
        changed, other = values % low, values // low
        modulus, next_modulus = low, high
        for key in self._keys:
            # A keyed hash of one half is added to the other half.
            h = other + key
            h ^= h >> _HALF
            h *= MULTIPLIERS[0]
            h ^= h >> _HALF
            h *= MULTIPLIERS[1]
            h >>= _HALF
            h *= modulus  # 32 random bits to 0 … modulus-1 (Lemire 2019)
            h >>= _HALF
            changed += h
            # Both were below the modulus. A difference that would be negative wraps to huge.
            np.minimum(changed, changed - modulus, out=changed)
            changed, other = other, changed
            modulus, next_modulus = next_modulus, modulus
        if len(self._keys) % 2:
            changed, other = other, changed
        return other * low + changed
