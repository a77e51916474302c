"""What recorded steps come to, for a whole tensor: they are made once more, with real memory."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from training.initial.draws import DRAWN, Runs, bits, key_of
from training.initial.parts import Part, whole
from training.initial.steps import EMPTY, Step, View
from training.initial.values import Value


class Recorded(Protocol):
    """See ``training.initial.record.Recorder``."""

    seed: int
    leaves: Mapping[int, tuple[Value, View]]

    def bytes_of(self, storage: int) -> int: ...


@torch.no_grad()
def replayed(recorded: Recorded, view: View, steps: Sequence[Step]) -> Tensor:
    """The tensor that lies in ``view`` after ``steps``, which are all that it needs."""
    memory: dict[int, torch.UntypedStorage] = {}

    def real(one: View) -> Tensor:
        if one.storage not in memory:
            # Zeros, so that what nobody has set is the same on every rank.
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
            target = (step.writes or step.makes)[0]
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
    """An element's number is that of its place in the storage, whatever view it was drawn in."""
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
    """A value of which no part can be made alone: all of it is, and the part is kept.

    Attributes:
        why: the operation that mixes elements.
        bytes: what it takes for a moment, at least.
    """

    def __init__(self, recorded: Recorded, view: View, steps: Sequence[Step], why: str) -> None:
        self._recorded, self._view, self._steps = recorded, view, steps
        self.why, self.bytes = why, view.count * view.dtype.itemsize

    def write(self, part: Part, into: Tensor) -> None:
        into.copy_(replayed(self._recorded, self._view, self._steps)[part])
