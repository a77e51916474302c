"""Every allocation of a step and its end, in order, with what it is for."""

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

FLOAT8 = "torchao.float8."
"""Where tensors are from that are two: numbers of 8 bits, and their scales."""


class EachCall(TorchDispatchMode):
    """Inside, ``called`` is told of each operator's call; of one on DTensors when it comes as calls
    on this rank's parts, and of one on numbers in float8 as calls on these and their scales.
    """

    def __torch_dispatch__(
        self,
        operator: Callable,
        types: Sequence[type],
        args: tuple = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if any(kind is DTensor or kind.__module__.startswith(FLOAT8) for kind in types):
            return NotImplemented  # comes again, part by part
        made = operator(*args, **(kwargs or {}))
        self.called(operator, args, kwargs or {}, made)
        return made

    def called(self, operator: Any, args: tuple, kwargs: Mapping[str, Any], made: Any) -> None:
        """``operator`` has made ``made`` of its arguments."""
        raise NotImplementedError


CATEGORIES = ("parameters", "gradients", "optimizer", "activations", "gathered", "temporary")
"""What memory is for. gathered: whole weights of a unit that FSDP has put together, and what it
sends and receives for it. activations: made by a forward pass and still there in a backward one.
temporary: all else."""

GATHERS = ("all_gather", "chunk_cat", "split_with_sizes_copy", "reduce_scatter")
"""Parts of the names of operations that FSDP puts weights together and shares gradients with."""


@dataclass(slots=True)
class Life:
    """One allocation.

    Attributes:
        size: bytes.
        forward: whether a forward pass made it.
        category: what it is for, as far as its birth tells.
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
    """What was allocated and freed, in order.

    Attributes:
        last: how many events there were when the last step began.
    """

    lives: list[Life] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    last: int = 0


class Storages(EachCall):
    """Inside, notes every storage that an operation makes, and when the last tensor of it goes.

    Operations on DTensors are seen as those on this rank's parts.
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
        self._resize = resize = torch.UntypedStorage.resize_
        self._shadow = shadow = ShardingPropagator._propagate_tensor_meta_non_cached

        def unseen(*schema: Any) -> Any:  # whole tensors, by whose shape DTensor learns a result's
            self._blind += 1
            try:
                return shadow(*schema)
            finally:
                self._blind -= 1

        def resized(storage: torch.UntypedStorage, size: int) -> None:  # as FSDP2 frees and takes
            self._end(storage._cdata)
            resize(storage, size)
            self._see(storage, "gathered")

        torch.UntypedStorage.resize_ = resized
        ShardingPropagator._propagate_tensor_meta_non_cached = unseen
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        torch.UntypedStorage.resize_ = self._resize
        ShardingPropagator._propagate_tensor_meta_non_cached = self._shadow

    def call(self, tensors: Iterable[Tensor | None], category: str) -> None:
        """Say what the storages of these tensors are for, all their lives."""
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
        # A backward pass is made without gradients, and what it computes anew with them.
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
