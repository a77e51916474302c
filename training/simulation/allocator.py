"""What torch's caching allocator would have reserved on the GPU for a record's allocations.

Programs that report "memory" mostly report this (``torch.cuda.max_memory_reserved``). It is more
than what is alive, because a freed block is kept, and because a large allocation may find only
small ones free. The rules and constants are those of c10/cuda/CUDACachingAllocator.cpp; of its
streams one is simulated.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, field

from training.simulation.peak import rounded
from training.simulation.storages import Event

MIB = 2**20
SMALL = MIB  # kSmallSize: an allocation up to it comes from the small pool
PAGE = {"small": 2 * MIB, "large": 20 * MIB}  # kSmallBuffer, kLargeBuffer
LONE = 10 * MIB  # kMinLargeAlloc: from it on a segment is as large as asked for
ROUND_LARGE = 2 * MIB  # kRoundLarge


@dataclass
class Pool:
    """Blocks of one kind.

    Attributes:
        free: (size, address) of free blocks, smallest first.
    """

    kind: str
    expandable: bool
    reserved: int = 0
    free: list[tuple[int, int]] = field(default_factory=list)
    ends: dict[int, int] = field(default_factory=dict)  # a free block's end → its beginning
    begins: dict[int, int] = field(default_factory=dict)  # a free block's beginning → its end
    top: int = 0  # end of the addresses that were given out

    def take(self, size: int) -> int:
        """The address of ``size`` bytes: of the smallest free block that holds them, or of new
        memory."""
        place = bisect_left(self.free, (size, -1))
        if place == len(self.free):
            self._grow(size)
            place = bisect_left(self.free, (size, -1))
        length, address = self.free[place]
        self._remove(address, address + length)
        least = 512 if self.kind == "small" else SMALL + 1
        if length - size >= least or self.expandable and length > size:
            self._add(address + size, address + length)
        else:
            size = length
        self._taken[address] = size
        return address

    def give(self, address: int) -> None:
        """The end of the allocation at ``address``; free neighbours become one block."""
        begin, end = address, address + self._taken.pop(address)
        if begin in self.ends:
            before = self.ends[begin]
            self._remove(before, begin)
            begin = before
        if end in self.begins:
            after = self.begins[end]
            self._remove(end, after)
            end = after
        self._add(begin, end)

    def __post_init__(self) -> None:
        self._taken: dict[int, int] = {}

    def _grow(self, size: int) -> None:
        begin = self.top
        if self.expandable:  # one segment: what is free at its end is a part of the allocation
            begin = self.ends.get(self.top, self.top)
            if begin != self.top:
                self._remove(begin, self.top)
            pages = -(-(size - (self.top - begin)) // PAGE[self.kind])
            more = pages * PAGE[self.kind]
            self._add(begin, self.top + more)
        else:
            more = PAGE[self.kind]
            if self.kind == "large" and size >= LONE:
                more = -(-size // ROUND_LARGE) * ROUND_LARGE
            self.top = begin = begin + 1  # a gap: segments are not neighbours
            self._add(begin, begin + more)
        self.top += more
        self.reserved += more

    def _add(self, begin: int, end: int) -> None:
        insort(self.free, (end - begin, begin))
        self.begins[begin], self.ends[end] = end, begin

    def _remove(self, begin: int, end: int) -> None:
        del self.free[bisect_left(self.free, (end - begin, begin))]
        del self.begins[begin], self.ends[end]


def reserved(events: Sequence[Event], *, expandable: bool = True) -> int:
    """Bytes that are reserved at the end of the events; they only grow.

    Args:
        expandable: with ``PYTORCH_ALLOC_CONF=expandable_segments:True``, under which a pool is one
            segment that grows, page by page.
    """
    pools = {kind: Pool(kind, expandable) for kind in PAGE}
    places: dict[int, tuple[Pool, int]] = {}
    for event in events:
        size = rounded(abs(event.size))
        if event.size > 0:
            pool = pools["small" if size <= SMALL else "large"]
            places[event.life] = pool, pool.take(size)
        else:
            pool, address = places.pop(event.life)
            pool.give(address)
    return sum(pool.reserved for pool in pools.values())
