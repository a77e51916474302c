"""Build a workload's model on meta, with the known initial values of its tensors.

Values that are copies or joins of others are handled specially (``JoinedValue``), because
``Workload.restore`` joins queries, keys and values into one matrix (``torch.cat``). Built whole on
each rank, one such matrix of 70B would take 1 GB, more than a rank's share of the model on 512
ranks.
"""

import gc
import logging
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from training.weights.initial.element_values import ByElement, explain_obstacle
from training.weights.initial.initial_values import (
    ExistingValue,
    Part,
    Value,
    list_named_tensors,
    list_values,
    materialize_tensors,
    replace_tensors,
)
from training.weights.initial.recorder import NotRecordable, Recorder
from training.weights.initial.replay import RecorderProtocol, Step, View, WholeValue, name_draws

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows ``first`` … ``first + count - 1`` of a weight, copied from ``value``'s rows from
    ``start`` on.
    """

    first: int
    count: int
    value: Value
    start: int


@dataclass(frozen=True, slots=True)
class JoinedValue:
    """A value whose rows come from other values."""

    rows: Sequence[Rows]

    def write(self, part: Part, into: Tensor) -> None:
        begin, end = part[0].start, part[0].stop
        for rows in self.rows:
            first, last = max(begin, rows.first), min(end, rows.first + rows.count)
            if first < last:
                shift = rows.start - rows.first
                source_part = (slice(first + shift, last + shift), *part[1:])
                rows.value.write(source_part, into[first - begin : last - begin])


def find_copied_value(
    recorder: RecorderProtocol, target: View, steps: Sequence[Step]
) -> Value | None:
    """Return the value that ``steps`` copy or join by rows, or None if they do anything else."""
    source, other_steps = _trace_source(recorder, target, steps)
    if not other_steps:
        leaf = recorder.leaves.get(source.storage)
        is_whole = leaf is not None and _has_matching_rows(recorder, source, leaf, target)
        return leaf[0] if leaf and is_whole and leaf[1].size == target.size else None
    [*_, cat] = other_steps
    output = cat.makes[0] if cat.func is aten.cat.default else None
    if len(other_steps) > 1 or output is None or output.storage != source.storage:
        return None
    return _join_rows(recorder, target, cat)


def _trace_source(
    recorder: RecorderProtocol, target: View, steps: Sequence[Step]
) -> tuple[View, Sequence[Step]]:
    """Return the view that the whole target is copied from, and the steps that make that view.

    If it is not copied, return the target and all steps.
    """
    if not steps or steps[-1].func is not aten.copy_.default:
        return target, steps
    into, source = (view for view in steps[-1].flat if isinstance(view, View))
    is_same_storage = into.storage == target.storage and into.count == source.count
    if is_same_storage and all(_covers_storage(recorder, view) for view in (into, source)):
        return source, steps[:-1]
    return target, steps


def _join_rows(recorder: RecorderProtocol, target: View, cat: Step) -> JoinedValue | None:
    """Return the result of torch.cat if it joins whole rows of the target, otherwise None."""
    arguments = cat.map_arguments_by_name()
    pieces: list[View] = arguments["tensors"]
    leaves = [recorder.leaves.get(piece.storage) for piece in pieces]
    if not all(
        _has_matching_rows(recorder, *pair, target) for pair in zip(pieces, leaves, strict=True)
    ):
        return None
    if len({piece.dtype for piece in pieces}) > 1:  # torch.cat converts them
        return None
    dimension, width = arguments.get("dim", 0) % len(pieces[0].size), prod(target.size[1:])
    lengths = [prod(piece.size[dimension:]) for piece in pieces]
    if not width or any(length % width for length in lengths):
        return None
    rows: list[Rows] = []
    first = 0
    for outer in range(prod(pieces[0].size[:dimension])):
        for (value, _), length in zip(filter(None, leaves), lengths, strict=True):
            count = length // width
            rows.append(Rows(first, count, value, outer * count))
            first += count
    return JoinedValue(rows)


def _has_matching_rows(
    recorder: RecorderProtocol, piece: View, leaf: tuple[Value, View] | None, target: View
) -> bool:
    """Return whether a piece is a whole value whose rows fit the target, which is a whole
    weight.
    """
    if leaf is None or not piece.size or not target.size or not _covers_storage(recorder, target):
        return False
    lies = leaf[1]
    same_shape = lies.size[1:] == target.size[1:] and len(lies.size) == len(target.size)
    return (
        same_shape
        and lies.dtype == piece.dtype
        and all(_covers_storage(recorder, x) for x in (piece, lies))
    )


def _covers_storage(recorder: RecorderProtocol, view: View) -> bool:
    """Return whether a view covers its whole storage, in order."""
    return view.is_all(recorder.count_bytes(view.storage))


log = logging.getLogger(__name__)

ATTRIBUTE = "initial_recorder"


def build_on_meta(make: Callable[[], nn.Module], seed: int) -> nn.Module:
    """Build the model with ``make`` on meta, or a real one if that is impossible.

    In both cases its initial values depend on ``seed``, not on the sharding.
    """
    torch.manual_seed(seed)
    recorder = Recorder(seed)
    try:
        with recorder.record_operations():
            model = make()
        setattr(model, ATTRIBUTE, recorder)
        _finish_recording(model)
        return model
    except Exception as error:  # noqa: BLE001  errors of the model itself are raised below
        failure = error
    # The failed attempt has drawn numbers, and those of the real model have to depend on the seed
    # alone.
    torch.manual_seed(seed)
    model = make()
    log.warning(
        "the model cannot be built on meta (%s: %s): every rank builds all of it in its host's "
        "memory, and shards it then",
        type(failure).__name__,
        failure,
    )
    return model


@contextmanager
def record_changes(model: nn.Module | None) -> Iterator[None]:
    """Context in which the model may be changed and weights written; on meta the changes are
    recorded.

    Raises:
        NotRecordable: a change cannot be recorded.
    """
    recorder = find_recorder(model)
    if recorder is None or model is None:
        yield
        return
    with recorder.record_operations():
        yield
    _finish_recording(model)


def read_tensors(model: nn.Module | None, paths: Iterable[Path]) -> dict[str, Tensor]:
    """Return the tensors of safetensors files, to be written into ``model`` within
    ``record_changes``.

    For a model on meta they are on meta: a rank reads its part of them when it fills the model.
    """
    recorder, paths = find_recorder(model), [*paths]
    if recorder is not None:
        entries = [entry for path in paths for entry in list_values(path)]
        return {
            value.name: recorder.create_leaf(value, size, dtype) for value, size, dtype in entries
        }
    return {name: tensor for path in paths for name, tensor in load_file(path).items()}


def find_initial_values(model: nn.Module) -> dict[str, Value] | None:
    """Return a mapping of name to initial value of every tensor on meta, or None for a real
    model.
    """
    recorder = find_recorder(model)
    if recorder is None:
        return None
    tensors = list_named_tensors(model)
    return {
        name: _derive_value(recorder, name, tensor)
        for name, tensor in tensors.items()
        if tensor.is_meta
    }


def materialize_model(model: nn.Module, device: torch.device | None = None) -> nn.Module:
    """Return the model with all its initial values in memory, by default on the CPU."""
    initial_values = find_initial_values(model)
    if initial_values is not None:
        materialize_tensors(model, initial_values, device or torch.device("cpu"))
        delattr(model, ATTRIBUTE)
    return model


def describe_costly_weights(initial_values: Mapping[str, Value]) -> str | None:
    """Describe the weights that cannot be computed element by element, and so take memory
    temporarily.

    Return None if there are none.
    """
    # Reversed, so that a tied weight has the first of its names.
    costs = {id(value): (name, value) for name, value in reversed(list(initial_values.items()))}
    whole_values = [
        (name, value) for name, value in costs.values() if isinstance(value, WholeValue)
    ]
    if not whole_values:
        return None
    name, largest = max(whole_values, key=lambda entry: entry[1].bytes)
    return (
        f"{len(whole_values)} weights and buffers are not a function of each element alone, so "
        f"each rank computes them one by one as a whole and keeps its part: the largest is {name} "
        f"({largest.bytes / 1e6:.3g} MB, by {largest.reason})"
    )


def find_recorder(model: nn.Module | None) -> Recorder | None:
    """Return the recorder of a model on meta, or None for a real model."""
    return getattr(model, ATTRIBUTE, None)


def _derive_value(recorder: Recorder, name: str, tensor: Tensor) -> Value:
    """Return the initial value of a tensor on meta, in the form that needs the least memory."""
    view = recorder.get_view(tensor)
    steps = recorder.find_steps(view.storage)
    if not steps and view.storage in recorder.leaves:
        value, lies = recorder.leaves[view.storage]
        if lies == view:
            return value
    if read := find_copied_value(recorder, view, steps):
        return read
    name_draws(steps, name)
    reason = explain_obstacle(recorder, view, steps)
    return (
        ByElement(recorder, view, steps)
        if reason is None
        else WholeValue(recorder, view, steps, reason)
    )


def _finish_recording(model: nn.Module) -> None:
    """Finish recording: registered tensors are on meta, and all others become real.

    Raises:
        NotRecordable: two tensors share memory, or a tensor is referenced where it cannot be found.
    """
    recorder = find_recorder(model)
    assert recorder is not None  # noqa: S101
    replace_tensors(
        model,
        lambda tensor: (
            tensor
            if tensor.is_meta
            else recorder.create_leaf(ExistingValue(tensor.detach()), tensor.shape, tensor.dtype)
        ),
    )
    tensors_by_storage: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in list_named_tensors(model).items():
        if not recorder.has_recorded(tensor):
            raise NotRecordable(f"{name} was made on meta by the model itself")
        first, other = tensors_by_storage.setdefault(
            recorder.get_view(tensor).storage, (name, tensor)
        )
        if other is not tensor:
            raise NotRecordable(f"{name} and {first} are two tensors in one memory")
    registered_ids = {id(tensor) for _, tensor in tensors_by_storage.values()}
    for module in model.modules():
        for name, value in [*vars(module).items()]:
            if name not in ("_parameters", "_buffers", "_modules"):
                vars(module)[name] = _make_real(recorder, value, registered_ids, tensors_by_storage)
    _check_strays(recorder, registered_ids)


def _make_real(
    recorder: Recorder, value: Any, registered_ids: set[int], tensors_by_storage: Mapping[int, Any]
) -> Any:
    """Return an attribute's value with its unregistered tensors made real."""
    if isinstance(value, Tensor):
        if id(value) in registered_ids or not recorder.has_recorded(value):
            return value
        if recorder.get_view(value).storage in tensors_by_storage:
            raise NotRecordable("an attribute is a view of a weight")
        return recorder.materialize_tensor(value)
    if type(value) in (list, tuple):
        inner = [_make_real(recorder, item, registered_ids, tensors_by_storage) for item in value]
        return value if all(map(operator.is_, inner, value)) else type(value)(inner)
    if type(value) is dict:
        entries = {
            k: _make_real(recorder, item, registered_ids, tensors_by_storage)
            for k, item in value.items()
        }
        return value if all(map(operator.is_, entries.values(), value.values())) else entries
    return value


def _check_strays(recorder: Recorder, registered_ids: set[int]) -> None:
    """Check that no tensor on meta is left in a closure or another object.

    Raises:
        NotRecordable: one is left.
    """

    def find_strays() -> list[Tensor]:
        """Return the recorded tensors that exist but are not registered."""
        live_tensors = [value for value in gc.get_objects() if issubclass(type(value), Tensor)]
        # A buffer that is a view (``tril(ones).view(…)``) keeps its base alive.
        bases = {id(tensor._base) for tensor in live_tensors if id(tensor) in registered_ids}
        known_ids = registered_ids | bases
        suspects = [
            tensor
            for tensor in live_tensors
            if id(tensor) not in known_ids and recorder.has_recorded(tensor)
        ]
        return [
            tensor
            for tensor in suspects
            if recorder.get_view(tensor).storage not in recorder.leaves
        ]

    if find_strays():
        # Free what only a cycle of references keeps alive.
        gc.collect()
        if stray_tensors := find_strays():
            raise NotRecordable(
                f"a tensor {tuple(stray_tensors[0].shape)} is kept outside of any module: "
                "register it"
            )
