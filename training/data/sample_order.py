"""The order of the samples: a pure function, whose only state is a number of samples.

A position counts the samples that all ranks together have taken since the start of the training.
The order of positions does not depend on ranks or batches: position ``p`` is the same sample
however many ranks share a batch and however large it is. So a training run can continue from any
position with other ranks and another batch size, and every strategy gets the same global batches.
``loop.Loop`` decides the position: steps done times the global batch.

A permutation is identified by a name, a text; the same name gives the same permutation on every
machine and with every version of numpy (numpy's own generators do not promise that: NEP 19).

``Feistel`` is written here because the library with such a permutation, Grain's ``index_shuffle``,
returns one index per call: 5 to 8 µs each (Grain 0.2.18), here 20 to 25 ns.
"""

import functools
import hashlib
import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from training.data.bit_mixing import MULTIPLIERS, ODD, mix_bits

Permutation = Callable[[np.ndarray], np.ndarray]
"""Function that maps positions, int64 of shape (k,), to the k numbers at these positions, int64."""

TABLE = 4096
"""Largest permutation kept as a table (32 KB). A Feistel network over a tiny set needs far more
rounds: over the 120 permutations of 5 numbers its chi-square is still 13 times its degrees of
freedom after 12 rounds (400,000 keys)."""

ROUNDS = 8
"""Rounds of the Feistel network. They were measured against true permutations over 4,097 to
1,000,000 numbers, in 6 to 500 permutations at once: neighbours at distance 1 are too many by up
to 24 standard deviations with 4 rounds and by 21 with 5; with 6 no deviation is seen. Over 1,000
numbers (2,000 permutations) differences between neighbours show a deviation with 6 rounds (p =
7e-7), and none with 8. Each further pair of rounds makes such a deviation rarer by √n.
"""

BLOCK = 1 << 14
"""Positions that are computed at once: their few arrays of 128 KB stay in a core's cache, which
takes 20 ns per position instead of 33.
"""

_HALF = np.uint64(32)


@functools.lru_cache(16)
def create_permutation(name: str, size: int) -> Permutation:
    """Return the permutation of 0 … size-1 that is derived from ``name``."""
    return build_permutation_table(name, size).take if size <= TABLE else Feistel(name, size)


def build_permutation_table(name: str, size: int) -> np.ndarray:
    """Return the permutation of 0 … size-1 that is derived from ``name``, as a table.

    It is the order of ``size`` distinct random numbers, those of SplitMix64 (Steele et al. 2014).
    """
    key = np.frombuffer(hashlib.sha512(name.encode()).digest(), "<u8")[0]
    return np.argsort(mix_bits(np.arange(size, dtype=np.uint64) * ODD + key))


def build_permutation_tables(names: Sequence[str], size: int) -> np.ndarray:
    """Return several permutations at once, one per row: shape (names, size), int64."""
    digests = b"".join(hashlib.sha512(name.encode()).digest()[:8] for name in names)
    keys = np.frombuffer(digests, "<u8")[:, None]
    return np.argsort(mix_bits(np.arange(size, dtype=np.uint64) * ODD + keys), axis=1)


class Feistel:
    """A permutation of 0 … size-1 in constant memory.

    It is a Feistel network (Luby & Rackoff 1988, "How to construct pseudorandom permutations…")
    over pairs (quotient, remainder), with addition modulo the two sizes in turn: the
    "Generalized-Feistel cipher" of Black & Rogaway 2002, "Ciphers with arbitrary finite domains".
    There are a few more pairs than ``size`` (by √size at most); a result that is too large is
    encrypted again until it is below ``size`` ("cycle walking", ibid.). The keys are the SHA-512 of
    the name.

    Args:
        rounds: at most 8; fewer only in tests.
    """

    def __init__(self, name: str, size: int, rounds: int = ROUNDS) -> None:
        low = math.isqrt(size - 1) + 1
        low += low % 2  # if both sizes were odd, only even permutations could result
        self._size = np.uint64(size)
        self._sizes = (np.uint64(low), np.uint64(-(-size // low)))
        self._keys = np.frombuffer(hashlib.sha512(name.encode()).digest(), "<u8")[:rounds]

    def __call__(self, positions: np.ndarray) -> np.ndarray:
        out = np.empty(len(positions), np.int64)
        for start in range(0, len(positions), BLOCK):
            block = slice(start, start + BLOCK)
            values = self._encrypt_values(positions[block].astype(np.uint64))
            while len(too_large := np.flatnonzero(values >= self._size)):
                values[too_large] = self._encrypt_values(values[too_large])
            out[block] = values.view(np.int64)
        return out

    def _encrypt_values(self, values: np.ndarray) -> np.ndarray:
        """Return the values after all rounds; some may still be ``size`` or larger."""
        low, high = self._sizes
        half, other = values % low, values // low
        modulus, next_modulus = low, high
        for key in self._keys:
            # A keyed hash of one half is added to the other half.
            h = other + key
            h ^= h >> _HALF
            h *= MULTIPLIERS[0]
            h ^= h >> _HALF
            h *= MULTIPLIERS[1]
            h >>= _HALF
            h *= modulus  # maps 32 random bits to 0 … modulus-1 (Lemire 2019)
            h >>= _HALF
            half += h
            # Modular addition: both were below the modulus, so at most one subtraction is needed. A
            # difference that would be negative wraps around to a huge number, and the minimum is
            # the sum.
            np.minimum(half, half - modulus, out=half)
            half, other = other, half
            modulus, next_modulus = next_modulus, modulus
        # After an odd number of rounds the halves are swapped, so swap them back.
        if len(self._keys) % 2:
            half, other = other, half
        return other * low + half


FEW = 64
"""Largest epoch, in samples, for which the permutations of many epochs are computed together."""


class Order:
    """The endless sequence of samples: epoch 0 shuffled, then epoch 1 shuffled differently, and so
    on.

    Args:
        samples: samples in an epoch; at least 1.
        epoch: function that maps the number of an epoch to its permutation of 0 … samples-1.
    """

    def __init__(self, samples: int, epoch: Callable[[int], Permutation]) -> None:
        self._samples = samples
        # Cache two epochs, because what is read ahead reaches into the next one.
        self._epoch: Callable[[int], Permutation] = functools.lru_cache(2)(epoch)

    def indices_at(self, positions: np.ndarray | range) -> np.ndarray:
        """Return the global sample indices, int64, at these ascending positions."""
        positions = np.asarray(positions, np.int64)
        out = np.empty(len(positions), np.int64)
        for epoch, span in _split_by_epoch(positions, self._samples):
            out[span] = self._epoch(epoch)(positions[span] - epoch * self._samples)
        return out

    def find_next_shards(self, position: int) -> np.ndarray | None:
        """Return the shards that are read next from this position on, or None for all of them."""
        return None


def create_uniform_order(fingerprint: str, seed: int, samples: int) -> Order:
    """Return an order whose epochs are uniform permutations of the dataset, in constant memory."""

    def name(epoch: int) -> str:
        """Return the name of an epoch's permutation."""
        return f"{fingerprint} {seed} {epoch}"

    if samples <= FEW:
        return FewSamples(samples, name)
    return Order(samples, lambda epoch: create_permutation(name(epoch), samples))


def create_windowed_order(fingerprint: str, seed: int, sizes: np.ndarray, window: int) -> Order:
    """Return an order of shuffled whole shards, with samples shuffled within windows of shards.

    It is meant for storage that is fast only from front to back (FastFile, S3): at most two windows
    of shards have to be in memory.

    Args:
        sizes: samples in each shard, in the order of their global indices.
        window: samples in a window; it ends with the shard that comes nearest to that.
    """
    return WindowedOrder(
        int(sizes.sum()), lambda epoch: Windows(f"{fingerprint} {seed} {epoch}", sizes, window)
    )


class FewSamples(Order):
    """An order for a small input of a mixture, of which many epochs are needed at once.

    Args:
        name: function that maps the number of an epoch to the name of its permutation.
    """

    def __init__(self, samples: int, name: Callable[[int], str]) -> None:
        super().__init__(samples, lambda epoch: create_permutation(name(epoch), samples))
        self._name = name

    def indices_at(self, positions: np.ndarray | range) -> np.ndarray:
        positions = np.asarray(positions, np.int64)
        epochs, slots = np.divmod(positions, self._samples)
        begins = np.flatnonzero(np.diff(epochs, prepend=-1))
        rows = np.cumsum(np.diff(epochs, prepend=epochs[:1]) > 0)
        permutations = build_permutation_tables(
            [self._name(epoch) for epoch in epochs[begins].tolist()], self._samples
        )
        return permutations[rows, slots]


class WindowedOrder(Order):
    """The order that ``create_windowed_order`` returns."""

    _epoch: Callable[[int], "Windows"]

    def find_next_shards(self, position: int) -> np.ndarray:
        """Return the shards of the window at this position, then those of the next one."""
        epoch, offset = divmod(position, self._samples)
        current, after = self._epoch(epoch).find_window_shards(offset)
        if not len(after):
            after = self._epoch(epoch + 1).find_window_shards(0)[0]
        return np.array(list(dict.fromkeys([*current.tolist(), *after.tolist()])), np.int64)


class Windows:
    """One epoch of a windowed order. Its memory grows with the number of shards, not of samples."""

    def __init__(self, name: str, sizes: np.ndarray, window: int) -> None:
        self._name = name
        self._shards = build_permutation_table(f"{name} shards", len(sizes))
        # Global index of each shard's first sample.
        self._first = (np.cumsum(sizes) - sizes)[self._shards]
        self._begins = np.concatenate(([0], np.cumsum(sizes[self._shards])))
        samples = int(self._begins[-1])
        count = max(1, samples // window)
        # Windows have about equal sizes, so that the last one is not a small remainder.
        ends = np.searchsorted(self._begins, np.arange(1, count) * (samples / count))
        edges = np.concatenate(([0], ends, [len(sizes)]))  # ascending, some of them twice
        # A shard larger than a window gives the same edge twice, so keep each edge once.
        self._windows = edges[np.append(True, edges[1:] != edges[:-1])]
        self._edges = self._begins[self._windows]

    def __call__(self, positions: np.ndarray) -> np.ndarray:
        """Return the global sample indices, int64, at these ascending positions of the epoch."""
        indices = np.empty(len(positions), np.int64)
        cuts = np.searchsorted(positions, self._edges)
        for number in np.flatnonzero(np.diff(cuts)):
            span = slice(cuts[number], cuts[number + 1])
            start, stop = self._edges[number : number + 2].tolist()
            permute = create_permutation(f"{self._name} window {number}", stop - start)
            indices[span] = permute(positions[span] - start) + start
        slots = np.searchsorted(self._begins, indices, side="right") - 1
        return indices - self._begins[slots] + self._first[slots]

    def find_window_shards(self, position: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the shards of the window at this position, and those of the next window (none
        after the last).
        """
        number = int(np.searchsorted(self._edges, position, side="right")) - 1
        edges = [*self._windows[number:].tolist()[:3], len(self._shards)]
        return self._shards[edges[0] : edges[1]], self._shards[edges[1] : edges[2]]


def rank_positions(
    position: int, first: int, count: int, *, global_batch: int, rank: int, world: int
) -> np.ndarray:
    """Return the positions of samples ``first`` … ``first + count - 1`` of rank ``rank``.

    Every global batch is cut into ``world`` equal consecutive parts. A rank's samples are those of
    its part of each batch, one batch after the other.

    Args:
        position: position at which the first global batch begins.
    """
    share = global_batch // world
    batches, offsets = np.divmod(np.arange(first, first + count), share)
    return position + batches * global_batch + rank * share + offsets


def _split_by_epoch(positions: np.ndarray, size: int) -> Iterator[tuple[int, slice]]:
    """Split ascending positions by epoch; yield (epoch, slice of the positions in it)."""
    if not len(positions):
        return
    epochs = range(int(positions[0]) // size, int(positions[-1]) // size + 1)
    cuts = [*np.searchsorted(positions, np.array(epochs) * size).tolist(), len(positions)]
    for epoch, (start, stop) in zip(epochs, itertools.pairwise(cuts), strict=True):
        if start < stop:
            yield epoch, slice(start, stop)
