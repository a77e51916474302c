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
    """Interface of the class ``Contender`` in each module of this package.

    A batch is a tensor of shape (32, 2049) with memory of its own, so that a reader cannot shine
    by not reading. Its type is the one that the library gives by itself: uint16, or int64.
    """

    def write(self, samples: "np.ndarray", folder: Path) -> None:
        """Write samples, uint16 of shape (n, 2049), in the library's format to the empty folder."""

    def batches(self, folder: Path, shuffled: bool) -> "Iterable[Tensor]":
        """Open the folder; each iteration over the result is one epoch of whole batches."""

    def save(self, folder: Path, points: Sequence[int]) -> "Iterator[tuple[Any, Tensor]]":
        """Read shuffled; after each number of batches (ascending) yield state and next batch."""

    def resume(self, folder: Path, state: Any) -> "Tensor":
        """Open the folder as a new process would, restore the state, and return the next batch."""


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
    """How far the library shuffles when used as its documentation recommends."""
    tasks: frozenset[str] = frozenset({"write", "read", "resume"})

    def explain_absence(self) -> str | None:
        """Return why it cannot run, or None."""
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


def iter_readers(batches: Iterator[Any], points: Sequence[int]) -> Iterator[Callable[[], Any]]:
    """Yield, after each number of batches, a function that returns the next one: call it."""
    done = 0
    for point in points:
        for _ in islice(batches, point - done):
            pass
        yield lambda: next(batches)
        done = point + 1


def load_contender(module: str) -> Contender:
    """Import the module of a contender, and return the contender."""
    return importlib.import_module(f"{__name__}.{module}").Contender()
