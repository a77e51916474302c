"""A workload's model on meta, with the known initial values of its tensors.

``Workload.restore`` joins queries, keys and values into one matrix (``torch.cat``); built
whole on each rank, one of 70B would take 1 GB, more than a rank's share of the model has on 512.
"""

import gc
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from training.export.int8_weights import SCALE, dequantised
from training.initial.element_values import ByElement, obstacle
from training.initial.fill_memory import fill, named, replace
from training.initial.initial_values import Known, Part, Value, stored
from training.initial.recorder import NotRecordable, Recorder
from training.initial.replay import Recorded, Step, View, Whole, name_draws

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Rows:
    """``count`` rows of the weight from ``first`` on: those of ``value`` from ``start`` on."""

    first: int
    count: int
    value: Value
    start: int


@dataclass(frozen=True, slots=True)
class Joined:
    """A value whose rows come from other values."""

    rows: Sequence[Rows]

    def write(self, part: Part, into: Tensor) -> None:
        begin, end = part[0].start, part[0].stop
        for one in self.rows:
            first, last = max(begin, one.first), min(end, one.first + one.count)
            if first < last:
                shift = one.start - one.first
                theirs = (slice(first + shift, last + shift), *part[1:])
                one.value.write(theirs, into[first - begin : last - begin])


def copied_value(recorded: Recorded, target: View, steps: Sequence[Step]) -> Value | None:
    """Return the value that ``steps`` copy or join by rows; None if they do anything else."""
    source, rest = _source(recorded, target, steps)
    if not rest:
        leaf = recorded.leaves.get(source.storage)
        whole = leaf is not None and _rows_alike(recorded, source, leaf, target)
        return leaf[0] if leaf and whole and leaf[1].size == target.size else None
    [*_, cat] = rest
    made = cat.makes[0] if cat.func is aten.cat.default else None
    if len(rest) > 1 or made is None or made.storage != source.storage:
        return None
    return _joined(recorded, target, cat)


def _source(recorded: Recorded, target: View, steps: Sequence[Step]) -> tuple[View, Sequence[Step]]:
    """Return the view that the whole target is copied from, and the steps that lead to it."""
    if not steps or steps[-1].func is not aten.copy_.default:
        return target, steps
    into, source = (one for one in steps[-1].flat if isinstance(one, View))
    same = into.storage == target.storage and into.count == source.count
    if same and all(_all(recorded, one) for one in (into, source)):
        return source, steps[:-1]
    return target, steps


def _joined(recorded: Recorded, target: View, cat: Step) -> Joined | None:
    """Return the result of torch.cat if it joins whole rows of the target, else None."""
    named = cat.named()
    pieces: list[View] = named["tensors"]
    found = [recorded.leaves.get(one.storage) for one in pieces]
    if not all(_rows_alike(recorded, *pair, target) for pair in zip(pieces, found, strict=True)):
        return None
    if len({one.dtype for one in pieces}) > 1:  # torch.cat converts them
        return None
    dimension, width = named.get("dim", 0) % len(pieces[0].size), prod(target.size[1:])
    lengths = [prod(one.size[dimension:]) for one in pieces]
    if not width or any(length % width for length in lengths):
        return None
    rows: list[Rows] = []
    first = 0
    for outer in range(prod(pieces[0].size[:dimension])):
        for (value, _), length in zip(filter(None, found), lengths, strict=True):
            count = length // width
            rows.append(Rows(first, count, value, outer * count))
            first += count
    return Joined(rows)


def _rows_alike(
    recorded: Recorded, piece: View, leaf: tuple[Value, View] | None, target: View
) -> bool:
    """Return whether a piece is a whole value, and its rows fit the target, which is a whole
    weight.
    """
    if leaf is None or not piece.size or not target.size or not _all(recorded, target):
        return False
    lies = leaf[1]
    alike = lies.size[1:] == target.size[1:] and len(lies.size) == len(target.size)
    return alike and lies.dtype == piece.dtype and all(_all(recorded, x) for x in (piece, lies))


def _all(recorded: Recorded, one: View) -> bool:
    return one.is_all(recorded.bytes_of(one.storage))


log = logging.getLogger(__name__)

ATTRIBUTE = "initial_recorder"


def built(make: Callable[[], nn.Module], seed: int) -> nn.Module:
    """Return the model that ``make`` gives, on meta; a real one if that is impossible.

    Either way its initial numbers depend on ``seed``, not on the sharding.
    """
    torch.manual_seed(seed)
    recorder = Recorder(seed)
    try:
        with recorder.recording():
            model = make()
        setattr(model, ATTRIBUTE, recorder)
        _settle(model)
        return model
    except Exception as error:  # noqa: BLE001  errors of the model itself are raised below
        found = error
    torch.manual_seed(seed)
    model = make()
    log.warning(
        "the model cannot be built on meta (%s: %s): every rank builds all of it in its host's "
        "memory, and shards it then",
        type(found).__name__,
        found,
    )
    return model


@contextmanager
def changing(model: nn.Module | None) -> Iterator[None]:
    """Context in which the model may be changed and weights written; on meta that is recorded.

    Raises:
        NotRecordable: the change cannot be recorded.
    """
    recorder = recorder_of(model)
    if recorder is None or model is None:
        yield
        return
    with recorder.recording():
        yield
    _settle(model)


def read(model: nn.Module | None, paths: Iterable[Path]) -> dict[str, Tensor]:
    """Return the tensors of safetensors files, to be written into ``model`` within ``changing``.

    For a model on meta they are on meta: a rank reads its part of them when it fills the model.
    Weights stored as int8 are read at once.
    """
    recorder, paths = recorder_of(model), [*paths]
    if recorder is not None:
        every = [one for path in paths for one in stored(path)]
        if not any(one.name.endswith(SCALE) for one, _, _ in every):
            return {one.name: recorder.leaf(one, size, dtype) for one, size, dtype in every}
    return dequantised({n: tensor for path in paths for n, tensor in load_file(path).items()})


def values(model: nn.Module) -> dict[str, Value] | None:
    """Return name → initial value of every tensor on meta; None for a real model."""
    recorder = recorder_of(model)
    if recorder is None:
        return None
    found = named(model)
    return {name: _value(recorder, name, one) for name, one in found.items() if one.is_meta}


def real(model: nn.Module, device: torch.device | None = None) -> nn.Module:
    """Return the model with all its initial values, on the CPU by default."""
    known = values(model)
    if known is not None:
        fill(model, known, device or torch.device("cpu"))
        delattr(model, ATTRIBUTE)
    return model


def describe_costly(known: Mapping[str, Value]) -> str | None:
    """Describe the weights that are not drawn element by element, and cost memory temporarily."""
    costs = {id(one): (name, one) for name, one in reversed(list(known.items()))}
    whole = [(name, one) for name, one in costs.values() if isinstance(one, Whole)]
    if not whole:
        return None
    name, largest = max(whole, key=lambda entry: entry[1].bytes)
    return (
        f"{len(whole)} weights and buffers are not a function of each element alone, so each rank "
        f"makes all of one after the other and keeps its part: the largest is {name} "
        f"({largest.bytes / 1e6:.3g} MB, by {largest.why})"
    )


def recorder_of(model: nn.Module | None) -> Recorder | None:
    """Return the recorder of a model on meta; None for a real model."""
    return getattr(model, ATTRIBUTE, None)


def _value(recorder: Recorder, name: str, tensor: Tensor) -> Value:
    view = recorder.view(tensor)
    steps = recorder.needed(view.storage)
    if not steps and view.storage in recorder.leaves:
        value, lies = recorder.leaves[view.storage]
        if lies == view:
            return value
    if read := copied_value(recorder, view, steps):
        return read
    name_draws(steps, name)
    why = obstacle(recorder, view, steps)
    return ByElement(recorder, view, steps) if why is None else Whole(recorder, view, steps, why)


def _settle(model: nn.Module) -> None:
    """Finish recording: registered tensors are on meta, all others become real.

    Raises:
        NotRecordable: two tensors share memory, or a tensor is held where it cannot be found.
    """
    recorder = recorder_of(model)
    assert recorder is not None  # noqa: S101
    replace(model, lambda tensor: tensor if tensor.is_meta else _on_meta(recorder, tensor))
    places: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in named(model).items():
        if not recorder.knows(tensor):
            raise NotRecordable(f"{name} was made on meta by the model itself")
        first, other = places.setdefault(recorder.view(tensor).storage, (name, tensor))
        if other is not tensor:
            raise NotRecordable(f"{name} and {first} are two tensors in one memory")
    registered = {id(tensor) for _, tensor in places.values()}
    for module in model.modules():
        for name, held in [*vars(module).items()]:
            if name not in ("_parameters", "_buffers", "_modules"):
                vars(module)[name] = _found(recorder, held, registered, places)
    _check_strays(recorder, registered)


def _on_meta(recorder: Recorder, tensor: Tensor) -> Tensor:
    return recorder.leaf(Known(tensor.detach()), tensor.shape, tensor.dtype)


def _found(recorder: Recorder, held: Any, registered: set[int], places: Mapping[int, Any]) -> Any:
    """Return an attribute with its unregistered tensors made real."""
    if isinstance(held, Tensor):
        if id(held) in registered or not recorder.knows(held):
            return held
        if recorder.view(held).storage in places:
            raise NotRecordable("an attribute is a view of a weight")
        return recorder.real(held)
    if type(held) in (list, tuple):
        inner = [_found(recorder, one, registered, places) for one in held]
        return held if all(map(_same, inner, held)) else type(held)(inner)
    if type(held) is dict:
        named_ = {k: _found(recorder, one, registered, places) for k, one in held.items()}
        return held if all(map(_same, named_.values(), held.values())) else named_
    return held


def _same(one: Any, other: Any) -> bool:
    return one is other


def _check_strays(recorder: Recorder, registered: set[int]) -> None:
    """Raises: NotRecordable: a tensor on meta survives in a closure, or in another object."""

    def strays() -> list[Tensor]:
        every = [one for one in gc.get_objects() if issubclass(type(one), Tensor)]
        # A buffer that is a view (``tril(ones).view(…)``) keeps its base alive.
        bases = {id(one._base) for one in every if id(one) in registered}
        known = registered | bases
        found = [one for one in every if id(one) not in known and recorder.knows(one)]
        return [one for one in found if recorder.view(one).storage not in recorder.leaves]

    if strays():
        gc.collect()
        if found := strays():
            raise NotRecordable(
                f"a tensor {tuple(found[0].shape)} is kept where no module has it: register it"
            )
