"""Copy rows from many arrays into one, by their addresses.

A batch takes rows from many shards, perhaps from as many shards as it has rows. Going through them
shard by shard costs microseconds a shard and copies every row twice: measured on rows of 4 KB from
9 shards, 910 M tokens/s where one memory map gives 2,100, and 210 from 1,000 shards. Memory itself
can be indexed instead: as an array that begins at the lowest of the rows, with an element at every
byte, of which only those are touched where a row begins. That is one pass over all rows, as fast as
from one map, however many shards there are.
"""

import itertools

import numpy as np

RUN = 8  # rows; runs that are this long on average are copied as slices


def gather(addresses: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The rows at these addresses, in memory of their own: shape (len(addresses),).

    The caller sees to it that every address is one of a row inside an array, and that the arrays
    live until this returns.
    """
    breaks = np.diff(addresses) != dtype.itemsize
    if np.count_nonzero(breaks) * RUN > len(addresses):
        low = int(addresses.min())
        places = addresses - low
        return _memory(low, int(places.max()) + 1, dtype, stride=1)[places]
    out = np.empty(len(addresses), dtype)
    edges = [0, *(np.flatnonzero(breaks) + 1).tolist(), len(addresses)] if len(out) else [0]
    for start, stop in itertools.pairwise(edges):
        run = _memory(int(addresses[start]), stop - start, dtype, stride=dtype.itemsize)
        out[start:stop] = run
    return out


class _Memory:
    """What ``np.asarray`` makes an array of, without a copy and without owning anything."""

    def __init__(self, address: int, count: int, dtype: np.dtype, stride: int) -> None:
        self.__array_interface__ = {
            "version": 3,
            "data": (address, True),
            "shape": (count,),
            "strides": (stride,),
            "typestr": f"|V{dtype.itemsize}",
        }


def _memory(address: int, count: int, dtype: np.dtype, *, stride: int) -> np.ndarray:
    """``count`` elements from ``address`` on, each ``stride`` bytes after the one before."""
    return np.asarray(_Memory(address, count, dtype, stride)).view(dtype)
