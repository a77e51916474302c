"""Values of one metric in the order of its log: few of many, and the best of all."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from trainyard.runs.series import Sample

KEPT = 1_000
"""Samples of a metric that are kept, about; of more the lowest and highest of each stretch stay."""


@dataclass(slots=True)
class Samples:
    """What is known of one metric."""

    all: list[Sample] = field(default_factory=list)
    lowest: Sample | None = None
    """Of the finite ones, the first of equals."""
    highest: Sample | None = None
    count: int = 0

    @property
    def last(self) -> Sample | None:
        """The newest."""
        return self.all[-1] if self.all else None

    def add(self, one: Sample) -> None:
        """The next sample."""
        self.count += 1
        self.all.append(one)
        if math.isfinite(one.value):
            if self.lowest is None or one.value < self.lowest.value:
                self.lowest = one
            if self.highest is None or one.value > self.highest.value:
                self.highest = one
        if len(self.all) >= 2 * KEPT:
            self.all = list(_fewer(self.all, KEPT // 4))


def _fewer(samples: list[Sample], stretches: int) -> Iterator[Sample]:
    """Of each stretch at most four: the first, the lowest, the highest, and one without a place;
    and the last of all."""
    length = math.ceil(len(samples) / stretches)
    for begin in range(0, len(samples), length):
        part = samples[begin : begin + length]
        finite = [i for i, one in enumerate(part) if math.isfinite(one.value)]
        kept = {0, *[i for i, one in enumerate(part) if not math.isfinite(one.value)][:1]}
        if finite:
            kept.add(min(finite, key=lambda i: part[i].value))
            kept.add(max(finite, key=lambda i: part[i].value))
        if begin + length >= len(samples):
            kept.add(len(part) - 1)
        yield from (part[i] for i in sorted(kept))
