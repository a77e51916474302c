"""Results of recorded steps for some elements of a tensor, without the others.

Steps work element by element where each takes tensors of as many elements as the result has, and
the same operation gives each element of it from those in its place.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from training.initial.initial_values import Part
from training.initial.random_draws import DRAWN, Runs, bits, key_of
from training.initial.replay import EMPTY, OVERWRITING, Recorded, Step, View

aten = torch.ops.aten
CONSTANT = {
    aten.zeros.default: lambda named: 0,
    aten.ones.default: lambda named: 1,
    aten.full.default: lambda named: named["fill_value"],
    aten.zeros_like.default: lambda named: 0,
    aten.ones_like.default: lambda named: 1,
    aten.full_like.default: lambda named: named["fill_value"],
}
"""Operation that makes a constant → the constant."""
COPIES = {aten.clone.default, aten._to_copy.default, aten.copy_.default}


def obstacle(recorded: Recorded, target: View, steps: Sequence[Step]) -> str | None:
    """Return what prevents computing the steps element by element; None if nothing does."""
    lies = {view.storage: view for _, view in recorded.leaves.values()}
    if not _whole(recorded, target, target):
        return "it is a view of another tensor"
    for step in steps:
        if not _by_element(step):
            return str(step.func)
        for one in (x for x in [*step.flat, *step.makes] if isinstance(x, View)):
            if one.storage in lies and one.count == 1 and not one.size:
                continue  # a real number
            leaf = lies.get(one.storage)
            if leaf is not None and leaf.size != target.size:
                return f"{step.func} with a tensor of another shape"
            if one in step.writes and _region(recorded, one, target) is not None:
                continue
            if not _whole(recorded, one, target):
                return f"{step.func} with a tensor of another shape"
    return None


def _by_element(step: Step) -> bool:
    if step.func in DRAWN or step.func in EMPTY or step.func in CONSTANT:
        return True
    known = step.func in COPIES or step.func in OVERWRITING
    return known or (torch.Tag.pointwise in step.func.tags and not step.draws)


def _whole(recorded: Recorded, one: View, target: View) -> bool:
    return one.count == target.count and one.is_all(recorded.bytes_of(one.storage))


def _region(recorded: Recorded, one: View, target: View) -> list[range] | None:
    """Return a view's index range in each dimension of the target; None if it is not a box."""
    if recorded.bytes_of(one.storage) != target.count * one.dtype.itemsize:
        return None
    found, rest = [], one.offset
    for stride, size in zip(target.stride, target.size, strict=True):
        first = rest // stride if stride else 0
        found.append(range(first, first + 1))
        rest -= first * stride
        if first >= size:
            return None
    for size, stride in zip(one.size, one.stride, strict=True):
        if size == 1:
            continue
        along = [n for n, s in enumerate(target.stride) if s and s <= stride and stride % s == 0]
        place = max(along, key=lambda n: target.stride[n], default=None)
        if place is None or len(found[place]) > 1:
            return None
        step, first = stride // target.stride[place], found[place].start
        if first + step * (size - 1) >= target.size[place]:
            return None
        found[place] = range(first, first + step * (size - 1) + 1, step)
    return found


def runs_of(size: Sequence[int], part: Part) -> Runs:
    """Return the indices of a part's elements in the whole tensor, in the order of the part."""
    length, starts = 1, np.zeros(1, np.int64)
    dense, joined = 1, True  # joined: the dimensions after this one are held whole
    for whole, one in reversed([*zip(size, part, strict=True)]):
        held = one.stop - one.start
        if joined:
            starts, length = starts + one.start * dense, length * held
            joined = held == whole
        else:
            steps = np.arange(one.start, one.stop, dtype=np.int64) * dense
            starts = (steps[:, None] + starts).ravel()
        dense *= whole
    return Runs(starts if length else starts[:0], length)


class ByElement:
    """A value of which any part can be computed alone, with the same numbers as in the whole."""

    def __init__(self, recorded: Recorded, view: View, steps: Sequence[Step]) -> None:
        self._recorded, self._view, self._steps = recorded, view, steps

    @torch.no_grad()
    def write(self, part: Part, into: Tensor) -> None:
        leaves, done = self._leaves(part), 0
        flat = into.view(-1) if into.is_contiguous() else torch.empty_like(into).flatten()
        for chunk in runs_of(self._view.size, part).chunks():
            until = done + chunk.count
            given = {n: _padded(t[done:until] if t.dim() else t, chunk) for n, t in leaves.items()}
            made = self._made(chunk, given).expand(chunk.padded)  # numbers alone give one number
            flat[done:until] = made[: chunk.count]
            done = until
        if not into.is_contiguous():
            into.copy_(flat.view(into.shape))

    def _leaves(self, part: Part) -> dict[int, Tensor]:
        """Return this part of the values from outside, flat; a number is whole."""
        found = {}
        for storage in {s for step in self._steps for s in step.reads} & {*self._recorded.leaves}:
            value, lies = self._recorded.leaves[storage]
            held = part if lies.size else ()
            shape = [one.stop - one.start for one in held]
            found[storage] = torch.empty(shape, dtype=lies.dtype)
            value.write(held, found[storage])
            found[storage] = found[storage].flatten() if lies.size else found[storage]
        return found

    def _made(self, chunk: Runs, pieces: dict[int, Tensor]) -> Tensor:
        for step in self._steps:
            target = (step.writes or step.makes)[0]
            assert target is not None  # noqa: S101 (``needed`` keeps steps that write it)
            before = pieces.get(target.storage)
            if before is None:
                before = torch.zeros(chunk.padded, dtype=target.dtype)
            pieces[target.storage] = made = self._step(step, target, chunk, {**pieces}, before)
            if step.writes and not _whole(self._recorded, target, self._view):
                pieces[target.storage] = torch.where(self._mask(target, chunk), made, before)
        return pieces[self._view.storage]

    def _step(
        self, step: Step, target: View, chunk: Runs, pieces: dict[int, Tensor], before: Tensor
    ) -> Tensor:
        if step.func in EMPTY:
            return before
        if step.func in CONSTANT:
            return torch.full_like(before, CONSTANT[step.func](step.named()))
        if step.func in DRAWN:
            words = bits(key_of(self._recorded.seed, str(step.key)), chunk)
            return DRAWN[step.func](step.named())(words, target.dtype)
        if step.writes:  # elements outside the view are needed afterwards
            pieces[target.storage] = before.clone()
        flat = [pieces[x.storage] if isinstance(x, View) else x for x in step.flat]
        args, kwargs = step.arguments(flat)
        result = step.func(*args, **kwargs)
        return result[0] if isinstance(result, list | tuple) else result

    def _mask(self, one: View, chunk: Runs) -> Tensor:
        """Return which of the chunk's elements lie in a view of the target."""
        indices = np.zeros(chunk.padded, np.int64)
        indices[: chunk.count] = chunk.indices()
        inside = np.ones(chunk.padded, bool)
        region = _region(self._recorded, one, self._view) or []
        for places, stride, size in zip(region, self._view.stride, self._view.size, strict=True):
            at = indices // stride % size
            inside &= (at >= places.start) & (at < places.stop)
            inside &= (at - places.start) % places.step == 0
        return torch.from_numpy(inside)


def _padded(piece: Tensor, chunk: Runs) -> Tensor:
    if not piece.dim():
        return piece
    found = torch.zeros(chunk.padded, dtype=piece.dtype)
    found[: len(piece)] = piece
    return found
