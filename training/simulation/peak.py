"""The moment of a step at which most memory is alive, and what it is for."""

from collections.abc import Sequence
from dataclasses import dataclass

from training.simulation.storages import CATEGORIES, Record

ROUND = 512
"""Bytes that torch's caching allocator rounds an allocation up to (kMinBlockSize in
c10/cuda/CUDACachingAllocator.cpp)."""


@dataclass(frozen=True, slots=True)
class Peak:
    """What is alive at the moment of the most.

    Attributes:
        event: its place among the record's events.
        bytes: category → bytes; they add up to the peak.
    """

    event: int
    bytes: dict[str, int]

    @property
    def total(self) -> int:
        """All of it, in bytes."""
        return sum(self.bytes.values())


def rounded(size: int) -> int:
    """What the allocator takes for ``size`` bytes."""
    return -(-size // ROUND) * ROUND


def categories(record: Record) -> list[str]:
    """Each life's category: what it was called, else by when it was made and when it ended."""
    ended_backward = {e.life for e in record.events if e.size < 0 and e.backward}
    return [
        life.category
        or ("activations" if life.forward and number in ended_backward else "temporary")
        for number, life in enumerate(record.lives)
    ]


def timeline(record: Record) -> list[dict[str, int]]:
    """After each event: category → bytes that are alive."""
    named = categories(record)
    alive = dict.fromkeys(CATEGORIES, 0)
    found = []
    for event in record.events:
        change = rounded(abs(event.size))
        alive[named[event.life]] += change if event.size > 0 else -change
        found.append(dict(alive))
    return found


def peak(moments: Sequence[dict[str, int]]) -> Peak:
    """The moment of ``timeline`` at which most is alive."""
    most = max(range(len(moments)), key=lambda number: sum(moments[number].values()))
    return Peak(most, moments[most])
