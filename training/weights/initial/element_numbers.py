"""Random numbers that belong to an element: each depends only on a key and the element's index.

Philox (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3") turns a counter into
random bits, so any rank can compute the bits of any element without those before it. Each element
uses 64 of them; a normal number is the inverse distribution function of them, in float64.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

aten = torch.ops.aten


LANES = 4  # 64-bit words per value of Philox's counter
CHUNK = 16384
"""Number of elements computed at once. It is below 32768, from which on torch uses several
threads, whose pieces would depend on the number of threads.
"""
PADDING = 256
"""Chunk lengths are multiples of this, because processors compute what is left after whole
vectors with other instructions, and an element's number must not depend on its index in a chunk.
"""
SHORT = 256
"""Run length below which bits are taken from one draw over the chunk's whole range."""


@dataclass(frozen=True)
class Runs:
    """Indices of elements: runs of ``length`` adjacent elements that begin at ``starts``."""

    starts: np.ndarray
    length: int

    @property
    def count(self) -> int:
        return len(self.starts) * self.length

    @property
    def padded_count(self) -> int:
        return -(-self.count // PADDING) * PADDING

    def list_indices(self) -> np.ndarray:
        """Return the index of each element, int64 (count,)."""
        return (self.starts[:, None] + np.arange(self.length)).ravel()

    def iter_chunks(self) -> Iterator["Runs"]:
        """Yield the runs in order, in chunks of at most CHUNK elements each."""
        if self.length > CHUNK:
            for start in self.starts:
                for offset in range(0, self.length, CHUNK):
                    yield Runs(np.array([start + offset]), min(CHUNK, self.length - offset))
        elif self.length:
            rows = CHUNK // self.length
            for offset in range(0, len(self.starts), rows):
                yield Runs(self.starts[offset : offset + rows], self.length)


def derive_key(seed: int, name: str) -> int:
    """Return 128 bits of a hash of the seed and the name."""
    return int.from_bytes(hashlib.sha256(f"initial {seed} {name}".encode()).digest()[:16])


def draw_bits(key: int, runs: Runs) -> np.ndarray:
    """Return 64 random bits per element, uint64 (padded,); the padding after the last one is
    zeros.
    """
    words = np.zeros(runs.padded_count, np.uint64)
    if len(runs.starts) > 1 and runs.length < SHORT:
        first = int(runs.starts[0])
        span = int(runs.starts[-1]) + runs.length - first
        # The bits between the runs are computed, too, so the span is limited.
        if span < 64 * CHUNK:
            words[: runs.count] = _draw_words(key, first, span)[runs.list_indices() - first]
            return words
    for offset, start in zip(range(0, runs.count, runs.length or 1), runs.starts, strict=False):
        words[offset : offset + runs.length] = _draw_words(key, int(start), runs.length)
    return words


def _draw_words(key: int, start: int, count: int) -> np.ndarray:
    """Return the random words of ``count`` consecutive elements."""
    skip = start % LANES
    return np.random.Philox(key=key, counter=start // LANES).random_raw(count + skip)[skip:]


def convert_to_uniform(words: np.ndarray, low: float, high: float, dtype: torch.dtype) -> Tensor:
    """Return uniform numbers in [low, high)."""
    # Use the upper 53 bits, which is the precision of a float64.
    numbers = torch.from_numpy((words >> np.uint64(11)).astype(np.float64))
    result = numbers.mul_(2.0**-53 * (high - low)).add_(low).to(dtype)
    if high > low:  # rounding may reach ``high``
        edge = torch.tensor(high, dtype=dtype)
        result.clamp_(max=torch.nextafter(edge, torch.full_like(edge, -torch.inf)))
    return result


def convert_to_normal(words: np.ndarray, mean: float, std: float, dtype: torch.dtype) -> Tensor:
    """Return normal numbers, from 53 bits in the middle of their intervals, so that all are
    finite.
    """
    numbers = torch.from_numpy((words >> np.uint64(11)).astype(np.float64))
    normals = torch.special.ndtri(numbers.add_(0.5).mul_(2.0**-53))
    return normals.mul_(std).add_(mean).to(dtype)


Numbers = Callable[[np.ndarray, torch.dtype], Tensor]


def _parse_normal(arguments: Mapping[str, Any]) -> Numbers:
    """Return a function that turns random words into normally distributed numbers."""
    mean, std = arguments.get("mean", 0.0), arguments.get("std", 1.0)
    return lambda words, dtype: convert_to_normal(words, mean, std, dtype)


def _parse_uniform(arguments: Mapping[str, Any]) -> Numbers:
    """Return a function that turns random words into numbers between ``from`` and ``to``."""
    low, high = arguments.get("from", 0.0), arguments.get("to", 1.0)
    return lambda words, dtype: convert_to_uniform(words, low, high, dtype)


DRAW_FUNCTIONS: Mapping[Any, Callable[[Mapping[str, Any]], Numbers]] = {
    aten.normal_.default: _parse_normal,
    aten.normal.float_float: _parse_normal,
    aten.randn.default: _parse_normal,
    aten.randn_like.default: _parse_normal,
    aten.uniform_.default: _parse_uniform,
    aten.rand.default: _parse_uniform,
    aten.rand_like.default: _parse_uniform,
}
"""Mapping of an operation to a function that takes its arguments by name and returns a function
from 64 bits per element to the elements' numbers.
"""
