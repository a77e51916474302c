"""Which sample is read when: a pure function, nothing to save but a number of samples.

A position counts the samples that all ranks together have taken since the start of the training.
The order of positions does not know ranks or batches: position ``p`` is the same sample however
many ranks share a batch and however large it is. So a run can go on from any position with other
ranks and another batch, and every strategy sees the same global batches.
"""

import functools
import itertools
from collections.abc import Callable, Iterator

import numpy as np

from training.data.permutation import Permutation, permutation, table, tables

FEW = 64
"""Samples in an epoch up to which the permutations of many epochs are computed together."""


class Order:
    """The endless sequence of samples: epoch 0 shuffled, then epoch 1 shuffled anew, and so on.

    Args:
        samples: in an epoch; at least 1.
        epoch: number of an epoch → its permutation of 0 … samples-1.
    """

    def __init__(self, samples: int, epoch: Callable[[int], Permutation]) -> None:
        self._samples = samples
        self._epoch = functools.lru_cache(2)(epoch)

    def at(self, positions: np.ndarray | range) -> np.ndarray:
        """Global sample indices, int64, at ascending positions."""
        positions = np.asarray(positions, np.int64)
        out = np.empty(len(positions), np.int64)
        for epoch, here in _pieces(positions, self._samples):
            out[here] = self._epoch(epoch)(positions[here] - epoch * self._samples)
        return out

    def shards_from(self, position: int) -> np.ndarray | None:
        """Shards that are read from this position on, for a good while; None for all of them."""
        return None


def uniform(fingerprint: str, seed: int, samples: int) -> Order:
    """Every epoch is a uniform permutation of the whole dataset, in constant memory."""

    def name(epoch: int) -> str:
        return f"{fingerprint} {seed} {epoch}"

    if samples <= FEW:
        return FewSamples(samples, name)
    return Order(samples, lambda epoch: permutation(name(epoch), samples))


def windowed(fingerprint: str, seed: int, sizes: np.ndarray, window: int) -> Order:
    """Whole shards in a shuffled order, and the samples shuffled within windows of shards.

    For places that are read fast only from front to back (FastFile, S3): no more than two windows
    of shards have to be in memory.

    Args:
        sizes: samples in each shard, in the order of their global indices.
        window: samples in a window; it ends with the shard that comes nearest to that.
    """
    return WindowedOrder(
        int(sizes.sum()), lambda epoch: Windows(f"{fingerprint} {seed} {epoch}", sizes, window)
    )


class FewSamples(Order):
    """An order of which many epochs are asked for at once: of a small input of a mixture.

    Args:
        name: number of an epoch → its permutation's.
    """

    def __init__(self, samples: int, name: Callable[[int], str]) -> None:
        super().__init__(samples, lambda epoch: permutation(name(epoch), samples))
        self._name = name

    def at(self, positions: np.ndarray | range) -> np.ndarray:
        positions = np.asarray(positions, np.int64)
        epochs, slots = np.divmod(positions, self._samples)
        begins = np.flatnonzero(np.diff(epochs, prepend=-1))
        rows = np.cumsum(np.diff(epochs, prepend=epochs[:1]) > 0)
        drawn = tables([self._name(epoch) for epoch in epochs[begins].tolist()], self._samples)
        return drawn[rows, slots]


class WindowedOrder(Order):
    """See ``windowed``."""

    def shards_from(self, position: int) -> np.ndarray:
        """Shards of the window at this position, then those of the one after it."""
        epoch, offset = divmod(position, self._samples)
        here, after = self._epoch(epoch).shards(offset)
        if not len(after):
            after = self._epoch(epoch + 1).shards(0)[0]
        return np.array(list(dict.fromkeys([*here.tolist(), *after.tolist()])), np.int64)


class Windows:
    """One epoch of a windowed order. Memory grows with the number of shards, not of samples."""

    def __init__(self, name: str, sizes: np.ndarray, window: int) -> None:
        self._name = name
        self._shards = table(f"{name} shards", len(sizes))
        self._first = (np.cumsum(sizes) - sizes)[self._shards]  # global index of its first sample
        self._begins = np.concatenate(([0], np.cumsum(sizes[self._shards])))
        samples = int(self._begins[-1])
        count = max(1, samples // window)
        ends = np.searchsorted(self._begins, np.arange(1, count) * (samples / count))
        edges = np.concatenate(([0], ends, [len(sizes)]))  # ascending, some twice
        self._windows = edges[np.append(True, edges[1:] != edges[:-1])]
        self._edges = self._begins[self._windows]

    def __call__(self, positions: np.ndarray) -> np.ndarray:
        """Global sample indices, int64, at ascending positions of the epoch."""
        shuffled = np.empty(len(positions), np.int64)
        cuts = np.searchsorted(positions, self._edges)
        for number in np.flatnonzero(np.diff(cuts)):
            here = slice(cuts[number], cuts[number + 1])
            start, stop = self._edges[number : number + 2].tolist()
            mixed = permutation(f"{self._name} window {number}", stop - start)
            shuffled[here] = mixed(positions[here] - start) + start
        slots = np.searchsorted(self._begins, shuffled, side="right") - 1
        return shuffled - self._begins[slots] + self._first[slots]

    def shards(self, position: int) -> tuple[np.ndarray, np.ndarray]:
        """The shards of the window at this position, and of the next one (none after the last)."""
        number = int(np.searchsorted(self._edges, position, side="right")) - 1
        edges = [*self._windows[number:].tolist()[:3], len(self._shards)]
        return self._shards[edges[0] : edges[1]], self._shards[edges[1] : edges[2]]


def rank_positions(
    position: int, first: int, count: int, *, global_batch: int, rank: int, world: int
) -> np.ndarray:
    """Where rank ``rank`` of ``world`` reads: its samples ``first`` … ``first + count - 1``.

    Every global batch is cut into ``world`` equal consecutive parts; a rank's samples are those of
    its part of each batch, one batch after the other.

    Args:
        position: where the first global batch begins.
    """
    share = global_batch // world
    batches, within = np.divmod(np.arange(first, first + count), share)
    return position + batches * global_batch + rank * share + within


def _pieces(positions: np.ndarray, size: int) -> Iterator[tuple[int, slice]]:
    """Ascending positions by the epoch that they fall into."""
    if not len(positions):
        return
    epochs = range(int(positions[0]) // size, int(positions[-1]) // size + 1)
    cuts = [*np.searchsorted(positions, np.array(epochs) * size).tolist(), len(positions)]
    for epoch, (start, stop) in zip(epochs, itertools.pairwise(cuts), strict=True):
        if start < stop:
            yield epoch, slice(start, stop)
