"""Ways to keep a corpus on disk and to read it, one small module each.

A contender is imported only in a process of its own (``benchmarks.shards.worker``), so that one
library's threads, allocator and imports do not disturb another's. Nothing in this file imports any
of them.
"""

import importlib
import importlib.util
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

WIDTH = 2049
"""Tokens in a sample: what a model with 2,048 tokens of context is trained on."""

BATCH = 32
"""Samples in a batch."""


class Contender(Protocol):
    """What a module of this package holds as its class ``Contender``.

    A batch is a tensor of shape (32, 2049) with memory of its own, so that a reader cannot shine
    by not reading. Its type is the one that the library gives by itself: uint16, or int64.
    """

    def write(self, samples: "np.ndarray", folder: Path) -> None:
        """Keep the samples, uint16 of shape (n, 2049), in the library's format; the folder is
        empty.
        """

    def batches(self, folder: Path, shuffled: bool) -> "Iterable[Tensor]":
        """Open the folder. Each iteration over what comes back is one epoch of whole batches."""

    def save(self, folder: Path, points: Sequence[int]) -> "Iterator[tuple[Any, Tensor]]":
        """Read shuffled; after so many batches (ascending) the state, and the batch that follows.

        ``following`` does the counting.
        """

    def resume(self, folder: Path, state: Any) -> "Tensor":
        """Open the folder as a new process would, go to the state, read the next batch."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A contender, as the tables name it."""

    module: str
    label: str
    role: Literal["ours", "limit", "peer"]
    """limit: what the machine gives. peer: a library that does what Trainyard does."""
    distribution: str | None = None
    """The package to install and to import."""
    shuffle: str = "uniform"
    """What the library shuffles by the way that its documentation recommends."""
    tasks: frozenset[str] = frozenset({"write", "read", "resume"})

    def missing(self) -> str | None:
        """Why it cannot run, or None."""
        absent = self.distribution and importlib.util.find_spec(self.distribution) is None
        return f"{self.distribution} cannot be imported" if absent else None


ENTRIES = (
    Entry("ours", "Trainyard", "ours"),
    Entry("raw", "raw memory map", "limit", tasks=frozenset({"write", "read"})),
    Entry("data_loader", "Trainyard in torch's DataLoader", "ours", tasks=frozenset({"read"})),
    Entry("map_loader", "memory map in torch's DataLoader", "limit", tasks=frozenset({"read"})),
    Entry("litdata", "litdata", "peer", "litdata", "chunks, and in windows of 256"),
    Entry("huggingface", "Hugging Face datasets", "peer", "datasets"),
)


def following(batches: Iterator[Any], points: Sequence[int]) -> Iterator[Callable[[], Any]]:
    """After each of so many batches: what reads the next one. It must be called."""
    given = 0
    for point in points:
        for _ in islice(batches, point - given):
            pass
        yield lambda: next(batches)
        given = point + 1


def load(module: str) -> Contender:
    """The contender of this module, imported now."""
    return importlib.import_module(f"{__name__}.{module}").Contender()
