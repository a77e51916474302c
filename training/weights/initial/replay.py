"""Compute the results of recorded steps for a whole tensor, by running them again with real
memory.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

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
    def draws(self) -> bool:
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

    def needs(self, bytes_of: Callable[[int], int]) -> set[int]:
        """Return the storages whose previous content the operation needs."""
        views = [argument for argument in self.flat if isinstance(argument, View)]
        if self.func in OVERWRITING or self.func in DRAW_FUNCTIONS:
            # Overwriting a whole storage needs none of its previous content.
            for view in self.writes:
                if view.is_all(bytes_of(view.storage)):
                    views.remove(view)
        return {view.storage for view in views}


OVERWRITING = {
    aten.fill_.Scalar,
    aten.fill_.Tensor,
    aten.zero_.default,
    aten.copy_.default,
}
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
    for number, step in enumerate(candidate for candidate in steps if candidate.draws):
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
    """Return the tensor at ``view`` after ``steps``, which are all the steps that it depends on."""
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
            _draw(recorder, step, target, materialize_view(target))
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
    if not step.draws:
        results = step.func(*args, **kwargs)
    else:
        # The random state that the training draws from must not change.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_key(recorder.seed, str(step.key)) % 2**63)
            results = step.func(*args, **kwargs)
    outputs = results if isinstance(results, list | tuple) else [results]
    return [output for output in outputs if isinstance(output, Tensor)]


def _draw(recorder: RecorderProtocol, step: Step, lies: View, into: Tensor) -> None:
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


# Random numbers that belong to an element: each depends only on a key and the element's index.
#
# Philox (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3") turns a counter into
# random bits, so any rank can compute the bits of any element without those before it. Each element
# uses 64 of them; a normal number is the inverse distribution function of them, in float64.

LANES = 4  # 64-bit words per value of Philox's counter
CHUNK = 16384
"""Number of elements computed at once. It is below 32768, from which on torch uses several
threads, whose pieces would depend on the number of threads.
"""
PADDING = 256
"""Chunk lengths are multiples of this, because processors compute what is left after whole
vectors with other instructions, and an element's number must not depend on its index in a chunk.
"""
SHORT = 256
"""Run length below which bits are taken from one draw over the chunk's whole range."""


@dataclass(frozen=True)
class Runs:
    """Indices of elements: runs of ``length`` adjacent elements that begin at ``starts``."""

    starts: np.ndarray
    length: int

    @property
    def count(self) -> int:
        return len(self.starts) * self.length

    @property
    def padded_count(self) -> int:
        return -(-self.count // PADDING) * PADDING

    def list_indices(self) -> np.ndarray:
        """Return the index of each element, int64 (count,)."""
        return (self.starts[:, None] + np.arange(self.length)).ravel()

    def iter_chunks(self) -> Iterator["Runs"]:
        """Yield the runs in order, in chunks of at most CHUNK elements each."""
        if self.length > CHUNK:
            for start in self.starts:
                for offset in range(0, self.length, CHUNK):
                    yield Runs(np.array([start + offset]), min(CHUNK, self.length - offset))
        elif self.length:
            rows = CHUNK // self.length
            for offset in range(0, len(self.starts), rows):
                yield Runs(self.starts[offset : offset + rows], self.length)


def derive_key(seed: int, name: str) -> int:
    """Return 128 bits of a hash of the seed and the name."""
    return int.from_bytes(hashlib.sha256(f"initial {seed} {name}".encode()).digest()[:16])


def draw_bits(key: int, runs: Runs) -> np.ndarray:
    """Return 64 random bits per element, uint64 (padded,); the padding after the last one is
    zeros.
    """
    words = np.zeros(runs.padded_count, np.uint64)
    if len(runs.starts) > 1 and runs.length < SHORT:
        first = int(runs.starts[0])
        span = int(runs.starts[-1]) + runs.length - first
        # The bits between the runs are computed, too, so the span is limited.
        if span < 64 * CHUNK:
            words[: runs.count] = _read(key, first, span)[runs.list_indices() - first]
            return words
    for offset, start in zip(range(0, runs.count, runs.length or 1), runs.starts, strict=False):
        words[offset : offset + runs.length] = _read(key, int(start), runs.length)
    return words


def _read(key: int, start: int, count: int) -> np.ndarray:
    """Return the random words of ``count`` consecutive elements."""
    skip = start % LANES
    return np.random.Philox(key=key, counter=start // LANES).random_raw(count + skip)[skip:]


def convert_to_uniform(words: np.ndarray, low: float, high: float, dtype: torch.dtype) -> Tensor:
    """Return uniform numbers in [low, high)."""
    # Use the upper 53 bits, which is the precision of a float64.
    numbers = torch.from_numpy((words >> np.uint64(11)).astype(np.float64))
    result = numbers.mul_(2.0**-53 * (high - low)).add_(low).to(dtype)
    if high > low:  # rounding may reach ``high``
        edge = torch.tensor(high, dtype=dtype)
        result.clamp_(max=torch.nextafter(edge, torch.full_like(edge, -torch.inf)))
    return result


def convert_to_normal(words: np.ndarray, mean: float, std: float, dtype: torch.dtype) -> Tensor:
    """Return normal numbers, from 53 bits in the middle of their intervals, so that all are
    finite.
    """
    numbers = torch.from_numpy((words >> np.uint64(11)).astype(np.float64))
    normals = torch.special.ndtri(numbers.add_(0.5).mul_(2.0**-53))
    return normals.mul_(std).add_(mean).to(dtype)


Numbers = Callable[[np.ndarray, torch.dtype], Tensor]


def _parse_normal(arguments: Mapping[str, Any]) -> Numbers:
    """Return a function that turns random words into normally distributed numbers."""
    mean, std = arguments.get("mean", 0.0), arguments.get("std", 1.0)
    return lambda words, dtype: convert_to_normal(words, mean, std, dtype)


def _parse_uniform(arguments: Mapping[str, Any]) -> Numbers:
    """Return a function that turns random words into numbers between ``from`` and ``to``."""
    low, high = arguments.get("from", 0.0), arguments.get("to", 1.0)
    return lambda words, dtype: convert_to_uniform(words, low, high, dtype)


DRAW_FUNCTIONS: Mapping[Any, Callable[[Mapping[str, Any]], Numbers]] = {
    aten.normal_.default: _parse_normal,
    aten.normal.float_float: _parse_normal,
    aten.randn.default: _parse_normal,
    aten.randn_like.default: _parse_normal,
    aten.uniform_.default: _parse_uniform,
    aten.rand.default: _parse_uniform,
    aten.rand_like.default: _parse_uniform,
}
"""Mapping of an operation to a function that takes its arguments by name and returns a function
from 64 bits per element to the elements' numbers.
"""
