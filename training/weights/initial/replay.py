"""Compute the results of recorded steps for a whole tensor, by running them again with real
memory.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from training.weights.initial.element_numbers import DRAW_FUNCTIONS, Runs, derive_key, draw_bits
from training.weights.initial.initial_values import Part, Value, make_whole_part

# A tensor is identified by its storage, size, strides and offset. So views need no steps of their
# own, and an operation that writes into a view writes into the tensor that it is a view of.


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

    def as_tensor(self, storage: torch.UntypedStorage) -> Tensor:
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
            size == 1 or stride == expected_stride
            for size, stride, expected_stride in zip(self.size, self.stride, strides, strict=True)
        )
        return self.offset == 0 and in_order and self.count * self.dtype.itemsize == bytes_


@dataclass(eq=False)
class Step:
    """One operation that created or changed a storage."""

    func: Any
    flat: list[Any]
    """The call's arguments, flattened; a tensor is represented by its View."""
    spec: Any
    writes: list[View]
    """Views that the operation changes in place."""
    makes: list[View | None]
    """Results that are in new storages; None for the other results."""
    key: str | None = None
    """Name that the operation's random numbers depend on, in addition to the seed."""

    changed_storages: set[int] = field(init=False)
    """Storages that the operation creates or changes."""

    def __post_init__(self) -> None:
        self.changed_storages = {
            view.storage for view in [*self.writes, *self.makes] if view is not None
        }

    @property
    def reads(self) -> set[int]:
        """Storages of the operation's arguments."""
        return {argument.storage for argument in self.flat if isinstance(argument, View)}

    @property
    def is_random(self) -> bool:
        """True if the operation draws random numbers."""
        return torch.Tag.nondeterministic_seeded in self.func.tags

    def bind_arguments(self, flat: list[Any]) -> tuple[tuple, dict[str, Any]]:
        """Return the call's arguments, with ``flat`` instead of the recorded ones."""
        return tree_unflatten(flat, self.spec)

    def map_arguments_by_name(self) -> dict[str, Any]:
        """Return the arguments by their names in the operation's schema."""
        args, kwargs = self.bind_arguments(self.flat)
        names = [argument.name for argument in self.func._schema.arguments]
        return dict(zip(names, args, strict=False)) | kwargs

    def list_needed_storages(self, bytes_of: Callable[[int], int]) -> set[int]:
        """Return the storages whose previous content the operation needs."""
        views = [argument for argument in self.flat if isinstance(argument, View)]
        if self.func in OVERWRITING or self.func in DRAW_FUNCTIONS:
            # Overwriting a whole storage needs none of its previous content.
            for view in self.writes:
                if view.is_all(bytes_of(view.storage)):
                    views.remove(view)
        return {view.storage for view in views}


OVERWRITING = {aten.fill_.Scalar, aten.fill_.Tensor, aten.zero_.default, aten.copy_.default}
"""In-place operations that do not read their target."""
EMPTY = {aten.empty.memory_format, aten.empty_strided.default, aten.empty_like.default}


def flatten_arguments(args: tuple, kwargs: dict[str, Any]) -> tuple[list[Any], Any]:
    """Return the flattened arguments, and their structure."""
    return tree_flatten((args, kwargs))


def name_draws(steps: Iterable[Step], name: str) -> None:
    """Give the random draws in ``steps`` a name, unless they already have one.

    A draw keeps the first name that needs it: two weights that are copies of one draw stay equal,
    and what else the model contains does not change a weight's numbers.
    """
    for number, step in enumerate(candidate for candidate in steps if candidate.is_random):
        step.key = step.key or (f"{name}#{number}" if number else name)


def iter_tensors(structure: Any) -> Iterator[Tensor]:
    """Yield the tensors in any nested structure."""
    yield from (leaf for leaf in tree_flatten(structure)[0] if isinstance(leaf, Tensor))


class RecorderProtocol(Protocol):
    """Interface of ``training.weights.initial.recorder.Recorder``."""

    @property
    def seed(self) -> int: ...

    @property
    def leaves(self) -> Mapping[int, tuple[Value, View]]: ...

    def count_bytes(self, storage: int) -> int: ...


@torch.no_grad()
def replay_steps(recorder: RecorderProtocol, view: View, steps: Sequence[Step]) -> Tensor:
    """Run ``steps``, all that ``view`` depends on, for real; return the tensor at ``view``."""
    memory: dict[int, torch.UntypedStorage] = {}

    def materialize_view(location: View) -> Tensor:
        """Return the real tensor at a location; allocate its storage if it has none yet."""
        if location.storage not in memory:
            # Zeros, so that values that are never set are the same on every rank.
            zeros = torch.zeros(recorder.count_bytes(location.storage), dtype=torch.uint8)
            memory[location.storage] = zeros.untyped_storage()
            if location.storage in recorder.leaves:
                value, lies = recorder.leaves[location.storage]
                value.write(make_whole_part(lies.size), lies.as_tensor(memory[location.storage]))
        return location.as_tensor(memory[location.storage])

    for step in steps:
        if step.func in EMPTY:
            continue
        if step.func in DRAW_FUNCTIONS:
            target = step.writes[0] if step.writes else step.makes[0]
            assert target is not None  # random numbers are drawn into new storages
            _draw_into_view(recorder, step, target, materialize_view(target))
            continue
        for output, result in zip(
            step.makes, _run_step(recorder, step, materialize_view), strict=True
        ):
            if output is not None:
                materialize_view(output).copy_(result)
    return materialize_view(view)


def _run_step(recorder: RecorderProtocol, step: Step, real: Any) -> list[Tensor]:
    """Run a step on real tensors; return its results that are tensors."""
    flat = [real(x) if isinstance(x, View) else x for x in step.flat]
    args, kwargs = step.bind_arguments(flat)
    if not step.is_random:
        results = step.func(*args, **kwargs)
    else:
        # The random state that the training draws from must not change.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_key(recorder.seed, str(step.key)) % 2**63)
            results = step.func(*args, **kwargs)
    outputs = results if isinstance(results, list | tuple) else [results]
    return [output for output in outputs if isinstance(output, Tensor)]


def _draw_into_view(recorder: RecorderProtocol, step: Step, lies: View, into: Tensor) -> None:
    """Draw numbers into a view; an element's number depends only on its index in the storage."""
    key = derive_key(recorder.seed, str(step.key))
    numbers = DRAW_FUNCTIONS[step.func](step.map_arguments_by_name())
    if not lies.is_all(recorder.count_bytes(lies.storage)):
        count = recorder.count_bytes(lies.storage) // lies.dtype.itemsize
        words = draw_bits(key, Runs(np.zeros(1, np.int64), count))
        indices = torch.arange(count).as_strided(lies.size, lies.stride, lies.offset).flatten()
        draws = numbers(words[indices.numpy()], lies.dtype)
        into.copy_(draws.view(lies.size))
        return
    flat, offset = into.view(-1), 0
    for chunk in Runs(np.zeros(1, np.int64), lies.count).iter_chunks():
        flat[offset : offset + chunk.count] = numbers(draw_bits(key, chunk), lies.dtype)[
            : chunk.count
        ]
        offset += chunk.count


class WholeValue:
    """A value of which no part can be computed alone: all of it is computed, and the part is kept.

    Attributes:
        reason: the operation that mixes elements.
        bytes: smallest amount of memory that it needs temporarily.
    """

    def __init__(
        self, recorder: RecorderProtocol, view: View, steps: Sequence[Step], reason: str
    ) -> None:
        self._recorder, self._view, self._steps = recorder, view, steps
        self.reason, self.bytes = reason, view.count * view.dtype.itemsize

    def write(self, part: Part, into: Tensor) -> None:
        into.copy_(replay_steps(self._recorder, self._view, self._steps)[part])
