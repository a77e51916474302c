"""Which samples each rank sees at each step: a pure function, nothing to save but the step.

The order is defined over global sample indices and does not know the world size: position ``p`` of
epoch ``e`` is the same sample however many ranks share the step. So a run can go on with another
number of ranks, and every strategy sees the same global batches.
"""

import hashlib

import numpy as np


def permutation(fingerprint: str, seed: int, epoch: int, samples: int) -> np.ndarray:
    """The order of one epoch: a uniform permutation of 0 … samples-1."""
    name = f"{fingerprint} {seed} {epoch}".encode()
    key = np.frombuffer(hashlib.sha256(name).digest(), dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key[:2])).permutation(samples)


class GlobalOrder:
    """The endless sequence of samples: epoch 0 shuffled, then epoch 1 shuffled anew, and so on."""

    def __init__(self, fingerprint: str, seed: int, samples: int) -> None:
        self._name = (fingerprint, seed)
        self._samples = samples
        self._epoch = -1
        self._order = np.empty(0, dtype=np.int64)

    def at(self, start: int, count: int) -> np.ndarray:
        """Global sample indices at positions ``start`` … ``start + count - 1``."""
        positions = np.arange(start, start + count)
        epochs, offsets = np.divmod(positions, self._samples)
        out = np.empty(count, dtype=np.int64)
        for epoch in np.unique(epochs):
            here = epochs == epoch
            out[here] = self._of(int(epoch))[offsets[here]]
        return out

    def _of(self, epoch: int) -> np.ndarray:
        if epoch != self._epoch:
            self._order = permutation(*self._name, epoch, self._samples)
            self._epoch = epoch
        return self._order


def micro_batches(
    order: GlobalOrder, step: int, *, global_batch: int, micro_batch: int, rank: int, world: int
) -> list[np.ndarray]:
    """What rank ``rank`` of ``world`` reads in optimizer step ``step`` (counted from 0).

    The global batch is cut into ``world`` equal consecutive parts, each into micro-batches.
    """
    share = global_batch // world
    mine = order.at(step * global_batch + rank * share, share)
    return np.split(mine, share // micro_batch)
