"""Fresh pages that a step makes the kernel clear, found by taking and giving back what it does.

What malloc keeps and what it returns to the kernel depends on sizes and their order (glibc's
malloc/malloc.c: a block of the threshold's size and more is mapped by itself, the heap's end is
returned when it is long enough), so malloc itself is asked, without computing anything.
"""

import resource
from collections.abc import Sequence
from statistics import median

import torch

from training.probing import clock

STEPS = 6
WARM = 2
"""Steps that are not counted: the heap grows, and thresholds with it."""

BESIDE = 4
"""Tensors without contents that come and go with each block, about as many as a training has views
and saved results of one. Such small blocks lie between the large ones, and keep the heap's end from
being returned."""

MAPPED = 2**26
"""Bytes of a block that malloc never keeps: glibc's threshold grows to half of that at most."""


def fresh(before: Sequence[int], during: Sequence[int]) -> float:
    """Bytes a step of pages that were not there, the median of some steps.

    Args:
        before: bytes of blocks that are there when the step begins.
        during: bytes that are taken and, negative, the number of a block that ends: from 1 on,
            those of ``before`` first. What a step leaves takes the places of what it found.
    """
    there: dict[int, _Block] = {n: _Block(size) for n, size in enumerate(before, 1)}
    found = []
    for _ in range(STEPS):
        began = _faults()
        there = _step(there, during)
        found.append((_faults() - began) * resource.getpagesize())
    return median(found[WARM:])


class _Block:
    """Memory of so many bytes, each page of which was written to, with what lies beside it."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._written = torch.empty(size, dtype=torch.uint8)
        self._written[:: resource.getpagesize()].fill_(1)
        self._beside = [torch.empty(0) for _ in range(BESIDE)]


def _step(there: dict[int, _Block], during: Sequence[int]) -> dict[int, _Block]:
    """Make the step; what it leaves, by the numbers of those that it began with."""
    sizes = {number: one.size for number, one in there.items()}
    number = len(there)
    for one in during:
        if one > 0:
            number += 1
            there[number] = _Block(one)
        else:
            del there[-one]
    free: dict[int, list[_Block]] = {}
    for left in there.values():
        free.setdefault(left.size, []).append(left)
    return {
        number: free[size].pop(0) if free.get(size) else _Block(size)
        for number, size in sizes.items()
    }


def _faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def seconds() -> float:
    """CPU seconds of a fresh byte: the kernel's for finding and clearing its page."""
    return median(clock.used(lambda: _Block(MAPPED), 1) for _ in range(clock.BLOCKS)) / MAPPED
