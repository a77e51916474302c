"""Every allocation of a step and its end, in order, with its category."""

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

FLOAT8 = "torchao.float8."
"""Module prefix of tensors that consist of two: 8-bit numbers, and their scales."""


class EachCall(TorchDispatchMode):
    """Context in which ``called`` is called for each operator; a call on DTensors arrives as calls
    on this rank's parts, one on float8 tensors as calls on the numbers and their scales.
    """

    def __torch_dispatch__(
        self,
        operator: Callable,
        types: Sequence[type],
        args: tuple = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if any(kind is DTensor or kind.__module__.startswith(FLOAT8) for kind in types):
            return NotImplemented  # is called again, part by part
        made = operator(*args, **(kwargs or {}))
        self.called(operator, args, kwargs or {}, made)
        return made

    def called(self, operator: Any, args: tuple, kwargs: Mapping[str, Any], made: Any) -> None:
        """Handle a call of ``operator`` whose result is ``made``."""
        raise NotImplementedError


CATEGORIES = ("parameters", "gradients", "optimizer", "activations", "gathered", "temporary")
"""Categories of memory. gathered: whole weights of a unit that FSDP has put together, and what it
sends and receives for it. activations: made in a forward pass and still alive in a backward one.
temporary: everything else."""

GATHERS = ("all_gather", "chunk_cat", "split_with_sizes_copy", "reduce_scatter")
"""Parts of the names of operations by which FSDP gathers weights and reduces gradients."""


@dataclass(slots=True)
class Life:
    """One allocation.

    Attributes:
        size: size in bytes.
        forward: true if it was allocated in a forward pass.
        category: its category, as far as known when it was allocated.
    """

    size: int
    forward: bool
    category: str | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """An allocation (``size`` > 0) or its end (``size`` < 0, the same number of bytes)."""

    life: int
    size: int
    backward: bool


@dataclass
class Record:
    """All allocations and their ends, in order.

    Attributes:
        last: number of events before the last step.
    """

    lives: list[Life] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    last: int = 0


class Storages(EachCall):
    """Context that records every storage's creation, and when its last tensor is freed.

    Operations on DTensors are recorded as those on this rank's parts.
    """

    def __init__(self) -> None:
        super().__init__()
        self.record = Record()
        self._known: dict[int, int] = {}  # a living storage's address → its life
        self._watched: set[int] = set()
        self._blind = 0

    def called(self, operator: Any, args: tuple, kwargs: Mapping[str, Any], made: Any) -> None:
        gathers = any(name in operator.name() for name in GATHERS)
        for tensor in tree_leaves(made):
            if isinstance(tensor, Tensor):
                self._see(tensor.untyped_storage(), "gathered" if gathers else None)

    def __enter__(self) -> "Storages":
        resize = torch.UntypedStorage.resize_
        shadow = ShardingPropagator._propagate_tensor_meta_non_cached

        def unseen(*schema: Any) -> Any:  # whole tensors: DTensor infers a shape
            self._blind += 1
            try:
                return shadow(*schema)
            finally:
                self._blind -= 1

        def resized(storage: torch.UntypedStorage, size: int) -> None:  # FSDP2 frees so
            self._end(storage._cdata)
            resize(storage, size)
            self._see(storage, "gathered")

        self._patches = ExitStack()
        for where, name, function in (
            (torch.UntypedStorage, "resize_", resized),
            (ShardingPropagator, "_propagate_tensor_meta_non_cached", unseen),
        ):
            self._patches.enter_context(patch.object(where, name, function))
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._patches.close()

    def call(self, tensors: Iterable[Tensor | None], category: str) -> None:
        """Set the category of the storages of these tensors, for all their lives."""
        for tensor in tensors:
            if tensor is not None:
                storage = getattr(tensor, "_local_tensor", tensor).untyped_storage()
                self._see(storage, category)
                if storage._cdata in self._known:
                    self.record.lives[self._known[storage._cdata]].category = category

    def _see(self, storage: torch.UntypedStorage, category: str | None) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self._known or not size or self._blind:
            return
        # A backward pass runs without gradients; what it recomputes runs with them.
        life = Life(size, torch.is_grad_enabled(), category)
        self._note(len(self.record.lives), size)
        self._known[key] = len(self.record.lives)
        self.record.lives.append(life)
        if key not in self._watched:
            self._watched.add(key)
            weakref.finalize(storage, self._gone, key)

    def _gone(self, key: int) -> None:
        self._watched.discard(key)
        self._end(key)

    def _end(self, key: int) -> None:
        if key in self._known:
            life = self._known.pop(key)
            self._note(life, -self.record.lives[life].size)

    def _note(self, life: int, size: int) -> None:
        backward = torch._C._current_graph_task_id() != -1
        self.record.events.append(Event(life, size, backward))


ROUND = 512
"""Multiple of bytes to which torch's caching allocator rounds allocations up (kMinBlockSize in
c10/cuda/CUDACachingAllocator.cpp)."""


@dataclass(frozen=True, slots=True)
class Peak:
    """Live memory at its maximum.

    Attributes:
        event: index among the record's events.
        bytes: category → bytes; their sum is the peak.
    """

    event: int
    bytes: dict[str, int]

    @property
    def total(self) -> int:
        """The peak in bytes."""
        return sum(self.bytes.values())


def rounded(size: int) -> int:
    """Return the bytes that the allocator takes for ``size`` bytes."""
    return -(-size // ROUND) * ROUND


def categories(record: Record) -> list[str]:
    """Return each allocation's category: the one set, else derived from when it began and ended."""
    ended_backward = {e.life for e in record.events if e.size < 0 and e.backward}
    return [
        life.category
        or ("activations" if life.forward and number in ended_backward else "temporary")
        for number, life in enumerate(record.lives)
    ]


def timeline(record: Record) -> list[dict[str, int]]:
    """Return for each event: category → live bytes after it."""
    named = categories(record)
    alive = dict.fromkeys(CATEGORIES, 0)
    found = []
    for event in record.events:
        change = rounded(abs(event.size))
        alive[named[event.life]] += change if event.size > 0 else -change
        found.append(dict(alive))
    return found


def peak(moments: Sequence[dict[str, int]]) -> Peak:
    """Return the moment of ``timeline`` with the most live memory."""
    most = max(range(len(moments)), key=lambda number: sum(moments[number].values()))
    return Peak(most, moments[most])
