"""Compute the results of recorded steps for some elements of a tensor, without the others.

Steps work element by element if each takes tensors with as many elements as the result has, and
applies the same operation to the elements at the same index.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from training.weights.initial.element_numbers import DRAW_FUNCTIONS, Runs, derive_key, draw_bits
from training.weights.initial.initial_values import Part
from training.weights.initial.replay import EMPTY, OVERWRITING, RecorderProtocol, Step, View

aten = torch.ops.aten
CONSTANT = {
    aten.zeros.default: lambda arguments: 0,
    aten.ones.default: lambda arguments: 1,
    aten.full.default: lambda arguments: arguments["fill_value"],
    aten.zeros_like.default: lambda arguments: 0,
    aten.ones_like.default: lambda arguments: 1,
    aten.full_like.default: lambda arguments: arguments["fill_value"],
}
"""Mapping of an operation that makes a constant to a function that returns the constant."""
COPIES = {aten.clone.default, aten._to_copy.default, aten.copy_.default}


def explain_obstacle(recorder: RecorderProtocol, target: View, steps: Sequence[Step]) -> str | None:
    """Return what prevents computing the steps element by element, or None if nothing does."""
    lies = {view.storage: view for _, view in recorder.leaves.values()}
    if not _is_whole(recorder, target, target):
        return "it is a view of another tensor"
    for step in steps:
        is_source = step.func in DRAW_FUNCTIONS or step.func in EMPTY or step.func in CONSTANT
        is_copy = step.func in COPIES or step.func in OVERWRITING
        is_pointwise = torch.Tag.pointwise in step.func.tags and not step.is_random
        if not (is_source or is_copy or is_pointwise):
            return str(step.func)
        for operand in (x for x in [*step.flat, *step.makes] if isinstance(x, View)):
            if operand.storage in lies and operand.count == 1 and not operand.size:
                continue  # a number that was computed outside of the steps
            leaf = lies.get(operand.storage)
            if leaf is not None and leaf.size != target.size:
                return f"{step.func} with a tensor of another shape"
            # An operation may write a part of the target: ``_compute_chunk`` keeps the other
            # elements.
            if operand in step.writes and _find_region(recorder, operand, target) is not None:
                continue
            if not _is_whole(recorder, operand, target):
                return f"{step.func} with a tensor of another shape"
    return None


def _is_whole(recorder: RecorderProtocol, view: View, target: View) -> bool:
    """Return whether a view covers its whole storage, with as many elements as the target."""
    return view.count == target.count and view.is_all(recorder.count_bytes(view.storage))


def _find_region(recorder: RecorderProtocol, view: View, target: View) -> list[range] | None:
    """Return a view's index range in each dimension of the target, or None if it is not a box."""
    if recorder.count_bytes(view.storage) != target.count * view.dtype.itemsize:
        return None
    ranges, remaining_offset = [], view.offset
    for stride, size in zip(target.stride, target.size, strict=True):
        first = remaining_offset // stride if stride else 0
        ranges.append(range(first, first + 1))
        remaining_offset -= first * stride
        if first >= size:
            return None
    for size, stride in zip(view.size, view.stride, strict=True):
        if size == 1:
            continue
        along = [n for n, s in enumerate(target.stride) if s and s <= stride and stride % s == 0]
        dimension = max(along, key=lambda n: target.stride[n], default=None)
        if dimension is None or len(ranges[dimension]) > 1:
            return None
        step, first = stride // target.stride[dimension], ranges[dimension].start
        if first + step * (size - 1) >= target.size[dimension]:
            return None
        ranges[dimension] = range(first, first + step * (size - 1) + 1, step)
    return ranges


def build_runs(size: Sequence[int], part: Part) -> Runs:
    """Return the indices of a part's elements in the whole tensor, in the order of the part."""
    length, starts = 1, np.zeros(1, np.int64)
    dense, is_joined = 1, True  # is_joined: the part has the dimensions after this one completely
    for full_size, bounds in reversed([*zip(size, part, strict=True)]):
        span = bounds.stop - bounds.start
        if is_joined:
            starts, length = starts + bounds.start * dense, length * span
            is_joined = span == full_size
        else:
            steps = np.arange(bounds.start, bounds.stop, dtype=np.int64) * dense
            starts = (steps[:, None] + starts).ravel()
        dense *= full_size
    return Runs(starts if length else starts[:0], length)


class ByElement:
    """A value of which any part can be computed alone, with the same numbers as in the whole."""

    def __init__(self, recorder: RecorderProtocol, view: View, steps: Sequence[Step]) -> None:
        self._recorder, self._view, self._steps = recorder, view, steps

    @torch.no_grad()
    def write(self, part: Part, into: Tensor) -> None:
        leaves, offset = self._collect_leaves(part), 0
        flat = into.view(-1) if into.is_contiguous() else torch.empty_like(into).flatten()
        for chunk in build_runs(self._view.size, part).iter_chunks():
            end = offset + chunk.count
            pieces = {
                n: _pad_piece(t[offset:end] if t.dim() else t, chunk) for n, t in leaves.items()
            }
            # An operation on numbers alone gives one number, which is the value of every element.
            result = self._compute_chunk(chunk, pieces).expand(chunk.padded_count)
            flat[offset:end] = result[: chunk.count]
            offset = end
        if not into.is_contiguous():
            into.copy_(flat.view(into.shape))

    def _collect_leaves(self, part: Part) -> dict[int, Tensor]:
        """Return, for this part, the values that come from outside of the steps, flat; a 0-dim
        value as it is.
        """
        pieces = {}
        for storage in {s for step in self._steps for s in step.reads} & {*self._recorder.leaves}:
            value, lies = self._recorder.leaves[storage]
            leaf_part = part if lies.size else ()
            shape = [bounds.stop - bounds.start for bounds in leaf_part]
            pieces[storage] = torch.empty(shape, dtype=lies.dtype)
            value.write(leaf_part, pieces[storage])
            pieces[storage] = pieces[storage].flatten() if lies.size else pieces[storage]
        return pieces

    def _compute_chunk(self, chunk: Runs, pieces: dict[int, Tensor]) -> Tensor:
        """Return the values of a chunk's elements after all steps, from the pieces of the steps'
        inputs.
        """
        for step in self._steps:
            target = (step.writes or step.makes)[0]
            assert target is not None  # noqa: S101 (``find_steps`` returns steps that write)
            before = pieces.get(target.storage)
            if before is None:
                # Memory that nothing has written yet counts as zeros, so that it is the same on
                # every rank.
                before = torch.zeros(chunk.padded_count, dtype=target.dtype)
            pieces[target.storage] = result = self._compute_step(
                step, target, chunk, {**pieces}, before
            )
            if step.writes and not _is_whole(self._recorder, target, self._view):
                pieces[target.storage] = torch.where(
                    self._build_mask(target, chunk), result, before
                )
        return pieces[self._view.storage]

    def _compute_step(
        self, step: Step, target: View, chunk: Runs, pieces: dict[int, Tensor], before: Tensor
    ) -> Tensor:
        if step.func in EMPTY:
            return before
        if step.func in CONSTANT:
            return torch.full_like(before, CONSTANT[step.func](step.map_arguments_by_name()))
        if step.func in DRAW_FUNCTIONS:
            words = draw_bits(derive_key(self._recorder.seed, str(step.key)), chunk)
            return DRAW_FUNCTIONS[step.func](step.map_arguments_by_name())(words, target.dtype)
        if step.writes:  # the elements outside of the view are needed afterwards
            pieces[target.storage] = before.clone()
        flat = [pieces[x.storage] if isinstance(x, View) else x for x in step.flat]
        args, kwargs = step.bind_arguments(flat)
        result = step.func(*args, **kwargs)
        return result[0] if isinstance(result, list | tuple) else result

    def _build_mask(self, view: View, chunk: Runs) -> Tensor:
        """Return which of the chunk's elements are in a view of the target."""
        indices = np.zeros(chunk.padded_count, np.int64)
        indices[: chunk.count] = chunk.list_indices()
        is_inside = np.ones(chunk.padded_count, bool)
        region = _find_region(self._recorder, view, self._view) or []
        for index_range, stride, size in zip(
            region, self._view.stride, self._view.size, strict=True
        ):
            coordinates = indices // stride % size
            is_inside &= (coordinates >= index_range.start) & (coordinates < index_range.stop)
            is_inside &= (coordinates - index_range.start) % index_range.step == 0
        return torch.from_numpy(is_inside)


def _pad_piece(piece: Tensor, chunk: Runs) -> Tensor:
    """Pad a chunk's values with zeros to its padded length; a number stays as it is."""
    if not piece.dim():
        return piece
    result = torch.zeros(chunk.padded_count, dtype=piece.dtype)
    result[: len(piece)] = piece
    return result
