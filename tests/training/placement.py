"""Tracks where tensors are, on a machine without a GPU.

``cpu:0`` stands for the accelerator: torch computes on it as on ``cpu``, but whoever asks for it
gives its index. Each tensor that a call of torch's returns is marked: on the accelerator, or on the
host (made without a device, or copied there). A call that mixes them is refused as CUDA refuses it:
a host tensor of no dimensions may stand beside others in arithmetic, and an index may be the
host's. What the autograd engine, or DDP, makes by itself has no mark, and may stand beside all.
"""

import dataclasses
import functools
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode, resolve_name

ACCELERATOR = torch.device("cpu", 0)
HOST = torch.device("cpu")
UNKNOWN = torch.device("cpu", 1)  # of a tensor without a mark: what is made there has none, too
COPIES = {"copy_", "to", "detach", "requires_grad_", "set_", "_make_subclass"}
COPIES |= {"_has_compatible_shallow_copy_type"}  # a question, of ``Module._apply``
MAKES = {
    "tensor", "as_tensor", "zeros", "ones", "empty", "full", "arange", "rand", "randn", "randint",
    "linspace", "from_numpy", "eye", "zeros_like", "ones_like", "empty_like", "full_like",
    "new_zeros", "new_ones", "new_empty", "new_full", "new_tensor", "rand_like", "randn_like",
}  # fmt: skip
ALL_ALIKE = {"stack", "cat", "concat", "hstack", "vstack"}  # not even a number may be elsewhere
INDEXES = {"__getitem__", "__setitem__"}


class MixedDevices(AssertionError):
    """Like a GPU's error "Expected all tensors to be on the same device"."""


class Placement(TorchFunctionMode):
    """Context that tracks tensors, in the thread that entered it."""

    def __init__(self) -> None:
        super().__init__()
        self.placed = 0  # tensors that came to the accelerator: else nothing was tested

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name == "__get__":
            return self._property(func, args)
        if name == "__set__":
            func(*args)
            for tensor in tensors(args[1:]):  # .data = …
                args[0]._place = mark(tensor)
            return None
        given = [t for t in tensors((args, kwargs)) if mark(t)]
        places = {mark(t) for t in given}
        if len(places) > 1 and name not in COPIES and not accepts_host_tensors(name, given):
            raise MixedDevices(f"{resolve_name(func) or name}: {describe_tensors(given)}")
        result = func(*args, **kwargs)
        if name in ("to", "cpu") and result is args[0]:  # for torch it is there already
            result = result.clone()
        self._mark(name, args, kwargs, result, places)
        return result

    def _property(self, func, args):
        result = func(*args)
        if isinstance(result, torch.device):
            return result if inside_torch() else mark(args[0]) or UNKNOWN
        if isinstance(result, Tensor) and mark(args[0]) and not mark(result):
            result._place = mark(args[0])  # .data, .T, .grad
        return result

    def _mark(self, name: str, args, kwargs, result: Any, places: set) -> None:
        asked = [d for d in flat((args, kwargs)) if isinstance(d, torch.device)]
        if inside_torch():
            place = next(iter(places)) if len(places) == 1 else None
        elif asked or name == "cpu":
            place = (asked[0] if asked[0] != UNKNOWN else None) if asked else HOST
            self.placed += place == ACCELERATOR
        elif name in MAKES and not places:
            place = HOST
        elif len(places) == 1:
            [place] = places
        else:
            place = ACCELERATOR if places else None
        for tensor in tensors(result):
            if place is not None and not (name.endswith("_") and mark(tensor)):
                tensor._place = place


def inside_torch() -> bool:
    """Return whether a torch strategy calls: FSDP's own tensors are on its mesh's device,
    ``cpu``.
    """
    frame = sys._getframe(1)
    while frame.f_globals["__name__"] in (__name__, "torch.overrides"):
        frame = frame.f_back
    return frame.f_globals["__name__"].startswith("torch.distributed")


def mark(tensor: Tensor) -> torch.device | None:
    place = tensor.__dict__.get("_place")
    return None if place is not None and place.type == "meta" else place  # it is nowhere yet


def accepts_host_tensors(name: str, given: list[Tensor]) -> bool:
    """Return whether CUDA would accept host tensors there."""
    if name in INDEXES:
        return mark(given[0]) == ACCELERATOR
    hosts = [t for t in given if mark(t) == HOST]
    return name not in ALL_ALIKE and all(t.dim() == 0 for t in hosts)


def describe_tensors(given: Iterable[Tensor]) -> str:
    return ", ".join(f"{tuple(t.shape)} on {mark(t)}" for t in given)


def flat(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        for one in value:
            yield from flat(one)
    elif isinstance(value, dict):
        yield from flat(list(value.values()))
    else:
        yield value


def tensors(value: Any) -> list[Tensor]:
    return [one for one in flat(value) if isinstance(one, Tensor)]


def simulate() -> Placement:
    """Simulate an accelerator in this process: ranks use it, tensors from files do not."""
    from training.strategies.single import Strategy
    from training.weights.initial import initial_values

    begin, read, swapped = Strategy.__init__, torch.from_numpy, initial_values._swap_content

    @functools.wraps(begin)
    def begin_on_accelerator(self, config, workload, ranks):
        begin(self, config, workload, dataclasses.replace(ranks, device=ACCELERATOR))

    def from_numpy(array):  # also in the loader's thread, which the mode does not see
        tensor = read(array)
        tensor._place = HOST
        return tensor

    def swap_and_mark(parameter, content):
        found = swapped(parameter, content)
        if content is not parameter:  # it was on meta, whatever device was asked for
            found._place = mark(content)
        return found

    Strategy.__init__, torch.from_numpy, initial_values._swap_content = (
        begin_on_accelerator,
        from_numpy,
        swap_and_mark,
    )
    mode = Placement()
    mode.__enter__()
    return mode
