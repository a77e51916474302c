"""Results of recorded steps for a whole tensor: they are run again, with real memory."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from training.initial.initial_values import Part, Value, whole
from training.initial.random_draws import DRAWN, Runs, bits, key_of

# A tensor is identified by its storage, size, strides and offset. So views need no steps
# of their own, and what writes into a view writes into what it is a view of.


aten = torch.ops.aten


@dataclass(frozen=True)
class View:
    """Location of a tensor: its storage and layout."""

    storage: int
    dtype: torch.dtype
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    @property
    def count(self) -> int:
        """Number of elements."""
        return torch.Size(self.size).numel()

    def of(self, storage: torch.UntypedStorage) -> Tensor:
        """Return the tensor at this location in a real storage."""
        return torch.empty(0, dtype=self.dtype).set_(storage, self.offset, self.size, self.stride)

    def is_all(self, bytes_: int) -> bool:
        """Return whether the view covers a whole storage of ``bytes_`` bytes in order."""
        dense = 1
        strides: list[int] = []
        for size in reversed(self.size):
            strides.insert(0, dense)
            dense *= size
        in_order = all(
            size == 1 or mine == theirs
            for size, mine, theirs in zip(self.size, self.stride, strides, strict=True)
        )
        return self.offset == 0 and in_order and self.count * self.dtype.itemsize == bytes_


@dataclass(eq=False)
class Step:
    """One operation that created or changed a storage."""

    func: Any
    flat: list[Any]
    """The call's arguments, flattened; a tensor is a View."""
    spec: Any
    writes: list[View]
    """Views that the operation changes in place."""
    makes: list[View | None]
    """Results that lie in new storages; None for others."""
    key: str | None = None
    """Name that the operation's random numbers depend on, beside the seed."""

    written: set[int] = field(init=False)
    """Storages that the operation creates or changes."""

    def __post_init__(self) -> None:
        self.written = {one.storage for one in [*self.writes, *self.makes] if one is not None}

    @property
    def reads(self) -> set[int]:
        """Storages of the operation's arguments."""
        return {one.storage for one in self.flat if isinstance(one, View)}

    @property
    def draws(self) -> bool:
        """True if the operation draws random numbers."""
        return torch.Tag.nondeterministic_seeded in self.func.tags

    def arguments(self, flat: list[Any]) -> tuple[tuple, dict[str, Any]]:
        """Return the call's arguments, with ``flat`` in place of the recorded ones."""
        return tree_unflatten(flat, self.spec)

    def named(self) -> dict[str, Any]:
        """Return the arguments by the operation's names for them."""
        args, kwargs = self.arguments(self.flat)
        names = [one.name for one in self.func._schema.arguments]
        return dict(zip(names, args, strict=False)) | kwargs

    def needs(self, bytes_of: Callable[[int], int]) -> set[int]:
        """Return the storages whose previous content the operation needs."""
        views = [one for one in self.flat if isinstance(one, View)]
        if self.func in OVERWRITING or self.func in DRAWN:
            for one in self.writes:
                if one.is_all(bytes_of(one.storage)):
                    views.remove(one)
        return {one.storage for one in views}


OVERWRITING = {
    aten.fill_.Scalar,
    aten.fill_.Tensor,
    aten.zero_.default,
    aten.copy_.default,
}
"""In-place operations that do not read their target."""
EMPTY = {aten.empty.memory_format, aten.empty_strided.default, aten.empty_like.default}


def flattened(args: tuple, kwargs: dict[str, Any]) -> tuple[list[Any], Any]:
    """Return (flattened arguments, their structure)."""
    return tree_flatten((args, kwargs))


def name_draws(steps: Iterable[Step], name: str) -> None:
    """Give the random draws of steps a name, unless they have one.

    A draw belongs to the first name that needs it: two weights that are copies of one draw stay
    equal, and what else the model holds changes no weight's numbers.
    """
    for number, step in enumerate(one for one in steps if one.draws):
        step.key = step.key or (f"{name}#{number}" if number else name)


def tensors(of: Any) -> Iterator[Tensor]:
    """Yield the tensors in any nested structure."""
    yield from (one for one in tree_flatten(of)[0] if isinstance(one, Tensor))


class Recorded(Protocol):
    """Interface of ``training.initial.recorder.Recorder``."""

    @property
    def seed(self) -> int: ...

    @property
    def leaves(self) -> Mapping[int, tuple[Value, View]]: ...

    def bytes_of(self, storage: int) -> int: ...


@torch.no_grad()
def replayed(recorded: Recorded, view: View, steps: Sequence[Step]) -> Tensor:
    """Return the tensor at ``view`` after ``steps``, which are all the steps that it needs."""
    memory: dict[int, torch.UntypedStorage] = {}

    def real(one: View) -> Tensor:
        if one.storage not in memory:
            # Zeros, so that unset values are the same on every rank.
            zeros = torch.zeros(recorded.bytes_of(one.storage), dtype=torch.uint8)
            memory[one.storage] = zeros.untyped_storage()
            if one.storage in recorded.leaves:
                value, lies = recorded.leaves[one.storage]
                value.write(whole(lies.size), lies.of(memory[one.storage]))
        return one.of(memory[one.storage])

    for step in steps:
        if step.func in EMPTY:
            continue
        if step.func in DRAWN:
            target = step.writes[0] if step.writes else step.makes[0]
            assert target is not None  # numbers are drawn into memory of their own
            _draw(recorded, step, target, real(target))
            continue
        for one, result in zip(step.makes, _made(recorded, step, real), strict=True):
            if one is not None:
                real(one).copy_(result)
    return real(view)


def _made(recorded: Recorded, step: Step, real: Any) -> list[Tensor]:
    flat = [real(x) if isinstance(x, View) else x for x in step.flat]
    args, kwargs = step.arguments(flat)
    if not step.draws:
        results = step.func(*args, **kwargs)
    else:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(key_of(recorded.seed, str(step.key)) % 2**63)
            results = step.func(*args, **kwargs)
    given = results if isinstance(results, list | tuple) else [results]
    return [one for one in given if isinstance(one, Tensor)]


def _draw(recorded: Recorded, step: Step, lies: View, into: Tensor) -> None:
    """Draw numbers into a view; an element's number depends on its place in the storage alone."""
    key, numbers = key_of(recorded.seed, str(step.key)), DRAWN[step.func](step.named())
    if not lies.is_all(recorded.bytes_of(lies.storage)):
        count = recorded.bytes_of(lies.storage) // lies.dtype.itemsize
        words = bits(key, Runs(np.zeros(1, np.int64), count))
        places = torch.arange(count).as_strided(lies.size, lies.stride, lies.offset).flatten()
        drawn = numbers(words[places.numpy()], lies.dtype)
        into.copy_(drawn.view(lies.size))
        return
    flat, done = into.view(-1), 0
    for chunk in Runs(np.zeros(1, np.int64), lies.count).chunks():
        flat[done : done + chunk.count] = numbers(bits(key, chunk), lies.dtype)[: chunk.count]
        done += chunk.count


class Whole:
    """A value of which no part can be computed alone: all of it is computed, and the part is kept.

    Attributes:
        why: the operation that mixes elements.
        bytes: least memory that it needs temporarily.
    """

    def __init__(self, recorded: Recorded, view: View, steps: Sequence[Step], why: str) -> None:
        self._recorded, self._view, self._steps = recorded, view, steps
        self.why, self.bytes = why, view.count * view.dtype.itemsize

    def write(self, part: Part, into: Tensor) -> None:
        into.copy_(replayed(self._recorded, self._view, self._steps)[part])
