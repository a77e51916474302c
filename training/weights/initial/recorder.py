"""Record the initial values of a model's tensors while the model is built on meta.

``Workload.model`` is written as for any other model. What would allocate memory for weights
allocates none here, and every operation on them is recorded; what is real stays real (tables,
statistics, files). Code that reads a value (``.item()``, ``.tolist()``, an ``if``) gets the right
one, because the steps that lead to it are then computed. What cannot be recorded raises
``NotRecordable``.
"""

import heapq
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_unflatten

from training.weights.initial.initial_values import ExistingValue, Value
from training.weights.initial.replay import (
    Step,
    View,
    flatten_arguments,
    iter_tensors,
    name_draws,
    replay_steps,
)

aten = torch.ops.aten
META = torch.device("meta")
TO_META = {
    aten.empty.memory_format,
    aten.empty_strided.default,
    aten.full.default,
    aten.normal.float_float,
    aten.ones.default,
    aten.rand.default,
    aten.randn.default,
    aten.zeros.default,
}
"""Operations that create the tensors of weights. Those that create tables (arange) stay real."""
FAKE_PROPERTIES = {
    torch.Tensor.is_meta.__get__: False,  # type: ignore[attr-defined]  # a property,
    torch.Tensor.is_cpu.__get__: True,  # type: ignore[attr-defined]  # for the stubs a value
    torch.Tensor.device.__get__: torch.device("cpu"),
}
READS = {torch.Tensor.numpy, torch.Tensor.tolist, torch.Tensor.__array__}
"""Functions that read values without being a torch operation."""


class NotRecordable(Exception):
    """The model cannot be built on meta; the message says why."""


class Recorder:
    """The operations on tensors on meta, in their order.

    Attributes:
        seed: seed of the training; every random number depends on it.
        steps: the recorded operations.
        busy: whether the recorder itself is running operations.
        leaves: mapping of a storage to its value from outside of the steps, and the view of the
            storage that has this value.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.steps: list[Step] = []
        self.leaves: dict[int, tuple[Value, View]] = {}
        self._storages: list[torch.UntypedStorage] = []
        self._numbers: dict[int, int] = {}
        self._writers: dict[int, list[int]] = {}
        self._real_inputs: list[tuple[Tensor, int]] = []
        self.busy = False

    @contextmanager
    def record_operations(self) -> Iterator[None]:
        """Context in which weights are created on meta, and operations on them are recorded.

        Raises:
            NotRecordable: a real tensor was changed after its value was recorded.
        """
        own_function = nn.init._no_grad_trunc_normal_
        nn.init._no_grad_trunc_normal_ = _fill_trunc_normal
        try:
            with _RealAppearance(self), _Operations(self):
                yield
        finally:
            nn.init._no_grad_trunc_normal_ = own_function
        # torch counts a tensor's changes in ``_version``.
        if any(tensor._version != version for tensor, version in self._real_inputs):
            raise NotRecordable("a tensor was changed after a weight was set from it")

    def create_leaf(self, value: Value, size: torch.Size, dtype: torch.dtype) -> Tensor:
        """Return a tensor on meta that has this value."""
        meta = torch.empty(size, dtype=dtype, device=META)
        lies = self.get_view(meta)
        self.leaves[lies.storage] = value, lies
        return meta

    def get_view(self, tensor: Tensor) -> View:
        """Return the view (storage and layout) of a tensor on meta."""
        storage = tensor.untyped_storage()
        number = self._numbers.setdefault(storage._cdata, len(self._storages))
        if number == len(self._storages):
            self._storages.append(storage)  # kept alive, so that no other storage gets its address
        size, stride = tuple(tensor.shape), tensor.stride()
        return View(number, tensor.dtype, size, stride, int(tensor.storage_offset()))

    def has_recorded(self, tensor: Tensor) -> bool:
        """Return whether the tensor's content was recorded."""
        return tensor.is_meta and tensor.untyped_storage()._cdata in self._numbers

    def count_bytes(self, storage: int) -> int:
        """Return the size of a recorded storage in bytes."""
        return self._storages[storage].nbytes()

    def find_steps(self, storage: int, until: int | None = None) -> list[Step]:
        """Return the steps that determine a storage's content: those before step ``until``, or
        all.
        """
        until = len(self.steps) if until is None else until
        numbers: list[int] = []
        live = {storage}
        # Latest first: no earlier step determines what a later step overwrites.
        waiting = [-n for n in self._writers.get(storage, ()) if n < until]
        heapq.heapify(waiting)
        while waiting:
            number = -heapq.heappop(waiting)
            step = self.steps[number]
            # A step is in the queue once for each storage that it writes, but is taken only once.
            if (numbers and numbers[-1] == number) or not step.changed_storages & live:
                continue
            numbers.append(number)
            read = step.list_needed_storages(self.count_bytes)
            live = (live - step.changed_storages) | read
            for source in read:
                waiting += [-n for n in self._writers.get(source, ()) if n < number]
            heapq.heapify(waiting)
        return [self.steps[number] for number in reversed(numbers)]

    def materialize_tensor(self, tensor: Tensor) -> Tensor:
        """Return the current content of a tensor on meta."""
        view = self.get_view(tensor)
        steps = self.find_steps(view.storage)
        # Name its draws now, so that the weights computed from them keep the numbers that were
        # read.
        name_draws(steps, f"looked at after {len(self.steps)}")
        with self._pause():
            return replay_steps(self, view, steps)

    @contextmanager
    def _pause(self) -> Iterator[None]:
        """Context in which nothing is recorded."""
        was_busy, self.busy = self.busy, True
        try:
            yield
        finally:
            self.busy = was_busy

    def run(self, func: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Run an operation of the code that builds the model."""
        if self.busy:
            return func(*args, **kwargs)
        with self._pause():
            return self._run(func, args, kwargs)

    def _run(self, func: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Run an operation if it uses only real tensors; otherwise record it, on meta."""
        if func in TO_META:
            kwargs = {**kwargs, "device": META}
        inputs = list(iter_tensors((args, kwargs)))
        # Tables, and what is computed from them alone, stay real.
        if kwargs.get("device") != META and not any(tensor.is_meta for tensor in inputs):
            return func(*args, **kwargs)
        if kwargs.get("generator") is not None:
            raise NotRecordable(f"{func} draws from its own generator")
        targets = _find_targets(func, args, kwargs)
        gives = any("Tensor" in str(result.type) for result in func._schema.returns)
        # An operation that writes into a real tensor, or has no tensor as result and changes none,
        # is run and not recorded.
        if any(not target.is_meta for target in targets) or not (gives or targets):
            return self._run_real(func, args, kwargs)
        try:
            return self._record_step(func, args, kwargs)
        except NotImplementedError:  # the result's shape depends on values
            return self._run_real(func, args, kwargs)

    def _run_real(self, func: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Run an operation on the current values of its arguments, without recording it."""
        if any(target.is_meta for target in _find_targets(func, args, kwargs)):
            raise NotRecordable(f"{func} changes a weight depending on values")
        flat, spec = flatten_arguments(args, kwargs)
        flat = [
            self.materialize_tensor(x) if isinstance(x, Tensor) and x.is_meta else x for x in flat
        ]
        args, kwargs = tree_unflatten(flat, spec)
        if kwargs.get("device") == META:
            kwargs["device"] = torch.device("cpu")
        return func(*args, **kwargs)

    def _record_step(self, func: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Run an operation on meta, and record it as a step."""
        if "device" in kwargs:
            kwargs = {**kwargs, "device": META}
        flat, spec = flatten_arguments(args, kwargs)
        flat = [
            self._lift_to_meta(x) if isinstance(x, Tensor) and not x.is_meta else x for x in flat
        ]
        args, kwargs = tree_unflatten(flat, spec)
        for tensor in iter_tensors(flat):
            self.get_view(tensor)  # register the arguments before the results
        storage_count = len(self._storages)
        out = func(*args, **kwargs)
        results = [self.get_view(output) for output in iter_tensors(out)]
        makes = [view if view.storage >= storage_count else None for view in results]
        writes = [self.get_view(target) for target in _find_targets(func, args, kwargs)]
        if writes or any(makes):
            recorded_args = [self.get_view(x) if isinstance(x, Tensor) else x for x in flat]
            # The replay uses real memory.
            recorded_args = [torch.device("cpu") if x == META else x for x in recorded_args]
            step = Step(func, recorded_args, spec, writes, makes)
            for storage in {view.storage for view in [*writes, *makes] if view is not None}:
                self._writers.setdefault(storage, []).append(len(self.steps))
            self.steps.append(step)
        return out

    def _lift_to_meta(self, tensor: Tensor) -> Tensor:
        """Return a tensor on meta that has a real tensor's value."""
        self._real_inputs.append((tensor, tensor._version))
        return self.create_leaf(ExistingValue(tensor.detach()), tensor.shape, tensor.dtype)


def _find_targets(func: Any, args: tuple, kwargs: dict[str, Any]) -> list[Tensor]:
    """Return the arguments that an operation changes."""
    targets: list[Tensor] = []
    for number, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[number] if number < len(args) else kwargs.get(argument.name)
            targets += iter_tensors(value)
    return targets


class _Operations(TorchDispatchMode):
    """Pass every operation of torch to the recorder."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False, because True would make torch load dynamo: 2 s of CPU time."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        return self._recorder.run(func, args, kwargs or {})


class _RealAppearance(TorchFunctionMode):
    """Make recorded tensors appear real.

    Several of torch's initialisers skip tensors on meta (2.13: orthogonal_, trunc_normal_), and so
    does other people's model code.
    """

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(
        self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        recorder = self._recorder
        if (
            not recorder.busy
            and args
            and isinstance(args[0], Tensor)
            and recorder.has_recorded(args[0])
        ):
            if func in FAKE_PROPERTIES:
                return FAKE_PROPERTIES[func]
            if func in READS:
                args = (recorder.materialize_tensor(args[0].detach()), *args[1:])
        return func(*args, **(kwargs or {}))


def _fill_trunc_normal(
    tensor: Tensor, mean: float, std: float, a: float, b: float, generator: Any = None
) -> Tensor:
    """Replace torch's trunc_normal_, using the inverse distribution function.

    From 2.13 on torch reads each draw, and draws again what is outside of the bounds; on meta there
    is nothing to read.
    """
    if generator is not None:
        raise NotRecordable("trunc_normal_ draws from its own generator")
    low, high = (math.erf((edge - mean) / std / 2**0.5) for edge in (a, b))
    with torch.no_grad():
        wide = torch.empty_like(tensor, dtype=torch.float64).uniform_(low, high).erfinv_()
        return tensor.copy_(wide.mul_(std * 2**0.5).add_(mean).clamp_(a, b))
