"""The values of one metric: all of a short log, evenly thinned from a long one, extremes kept."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain

from trainyard.runs.series import Sample

STRETCHES = 500
"""Stretches of equal length that a curve is kept in, at most; even, since pairs are joined."""

Numbered = tuple[int, Sample]
"""A sample after its place in the log, from 0."""


@dataclass(slots=True)
class Samples:
    """The curve of one metric, in at most 4 × ``STRETCHES`` samples.

    Each stretch keeps its first, lowest, highest and first non-finite sample. When all stretches
    are full, neighbours are joined, so a stretch has the same length wherever it lies.
    """

    stretches: list[list[Numbered]] = field(default_factory=list)
    length: int = 1
    """Samples of the log in each stretch; the last may have fewer so far."""
    lowest: Sample | None = None
    """The lowest finite sample, the first of equals."""
    highest: Sample | None = None
    newest: Numbered | None = None
    count: int = 0

    @property
    def first(self) -> Sample | None:
        """The log's first sample."""
        return self.stretches[0][0][1] if self.count else None

    @property
    def last(self) -> Sample | None:
        """The log's newest sample."""
        return self.newest[1] if self.newest else None

    @property
    def all(self) -> list[Sample]:
        """The samples to draw, in the order of the log; the newest is the last."""
        return [one for _, one in self.numbered]

    @property
    def numbered(self) -> list[Numbered]:
        """The samples to draw, each after its place in the log."""
        kept = list(chain.from_iterable(self.stretches))
        if self.newest and kept[-1][0] < self.newest[0]:
            kept.append(self.newest)
        return kept

    def add(self, one: Sample) -> None:
        """Take in the next sample of the log."""
        self.newest = (self.count, one)
        if self.count % self.length:
            self.stretches[-1] = list(_kept([*self.stretches[-1], self.newest]))
        else:
            self.stretches = [*self._joined(), [self.newest]]
        self.count += 1
        if math.isfinite(one.value):
            if self.lowest is None or one.value < self.lowest.value:
                self.lowest = one
            if self.highest is None or one.value > self.highest.value:
                self.highest = one

    def _joined(self) -> list[list[Numbered]]:
        """Join neighbours when all stretches are full."""
        if len(self.stretches) < STRETCHES:
            return self.stretches
        self.length *= 2
        pairs = zip(self.stretches[::2], self.stretches[1::2], strict=True)
        return [list(_kept([*a, *b])) for a, b in pairs]


def _kept(part: list[Numbered]) -> Iterator[Numbered]:
    """Yield the first, lowest, highest and first non-finite sample, in the order of the log."""
    finite = [i for i, (_, one) in enumerate(part) if math.isfinite(one.value)]
    kept = {0, *[i for i in range(len(part)) if i not in finite][:1]}
    if finite:
        kept.add(min(finite, key=lambda i: part[i][1].value))
        kept.add(max(finite, key=lambda i: part[i][1].value))
    yield from (part[i] for i in sorted(kept))
