"""Trace one forward pass, part by part: work, bytes moved, bytes kept for the backward pass.

The parts are a model's blocks, what comes before the first, and what comes after the last. Nothing
is computed: the tensors have shapes but no values.
"""

import gc
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.tensor import DTensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry, sdpa_flop_count

from training.config import TrainConfig
from training.strategies import tensor_parallel
from training.strategies.block_wrapping import adapt_blocks
from training.strategies.ranks import Ranks
from training.weights.initial import initial_values
from training.weights.initial.build_model import build_on_meta
from training.workloads import Workload

ATTENTION = ("scaled_dot_product", "flash_attention", "efficient_attention", "flex_attention")
BATCHED_PRODUCTS = ("aten::bmm", "aten::baddbmm")
"""Products in which, in practice, no operand is a weight: explicitly written attention."""

LOOKED_UP = "aten::embedding"
FREE_OPERATORS = (
    "aten::empty",
    "aten::new_empty",
    "aten::lift_fresh",
    "aten::_unsafe_view",
    "prim::",
)
"""Operators, or prefixes of their names, that touch no element; views are recognised separately."""


def _touches_no_elements(operator: Any) -> bool:
    """Return whether an operator touches no element, such as a view."""
    return getattr(operator, "is_view", False) or operator.name().startswith(FREE_OPERATORS)


def _count_flops(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> int:
    """Return an operator call's floating-point operations; 0 if it is not a product."""
    packet = getattr(operator, "overloadpacket", None)
    if packet in flop_registry:
        return int(flop_registry[packet](*args, **kwargs, out_val=result))
    if "_flash_attention_for_cpu" in operator.name():  # not among those that torch counts
        shapes = [tensor.shape for tensor in args if isinstance(tensor, Tensor)]
        return int(sdpa_flop_count(*shapes[:3]))
    return 0


def _count_bytes(tensor: Tensor) -> int:
    """Return the bytes of a tensor's elements; of an expanded tensor, only those that are
    stored.
    """
    try:
        stored_bytes = tensor.untyped_storage().nbytes()
    except (NotImplementedError, RuntimeError):  # no storage, as with a functional wrapper
        stored_bytes = tensor.numel() * tensor.element_size()
    return min(tensor.numel() * tensor.element_size(), stored_bytes)


FLOAT8 = "torchao.float8."
"""Module prefix of the tensors that consist of two: 8-bit numbers, and their scales."""


@dataclass(slots=True)
class Part:
    """Memory and work of one part of a model in a forward pass of a whole batch.

    Attributes:
        parameters, trainable: numbers of elements on this rank.
        replicated_parameters: those of ``parameters`` that tensor-parallel ranks do not share.
        kept_bytes: bytes that the backward pass reads, except weights and the model's output. A
            part's input counts for this part, not for the one that produced it.
        output: bytes of the next part's input.
    """

    parameters: int = 0
    trainable: int = 0
    replicated_parameters: int = 0
    matmul_flops: int = 0
    attention_flops: int = 0
    elementwise_bytes: int = 0
    kept_bytes: int = 0
    output: int = 0

    def add(
        self, operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any
    ) -> None:
        """Count a call: the operations of a product or of attention, the bytes of any other.

        Operations are as torch's FlopCounterMode counts them: two for a multiplication and an
        addition, none left out for being causal.
        """
        name, flops = operator.name(), _count_flops(operator, args, kwargs, result)
        # Before the products: attention has flops, too.
        if any(part in name for part in (*ATTENTION, *BATCHED_PRODUCTS)):
            self.attention_flops += flops
        elif flops:
            self.matmul_flops += flops
        elif not _touches_no_elements(operator):
            # Of a table the requested rows are read, not all of it.
            read = result if name == LOOKED_UP else (args, kwargs)
            leaves = tree_leaves((read, result))
            self.elementwise_bytes += sum(
                _count_bytes(leaf) for leaf in leaves if isinstance(leaf, Tensor)
            )


@dataclass(frozen=True, slots=True)
class ForwardTrace:
    """Result of tracing a forward pass.

    Attributes:
        parts: before the blocks, each block, after the blocks; a model without blocks has one part.
        outputs: number of elements in the model's output.
        tied: whether the last part reads weights of the first one.
    """

    parts: Sequence[Part]
    outputs: int
    tied: bool


class PartCounter(TorchDispatchMode):
    """Context in which each operator call is counted for the running part of the model; a call on
    DTensors as its calls on this rank's parts, one on float8 tensors as its calls on the numbers
    and scales.

    Args:
        count: number of parts; the first one is running at the beginning.
    """

    def __init__(self, model: nn.Module, count: int) -> None:
        super().__init__()
        self.parts = [Part() for _ in range(count)]
        self.current, self.tied, self._has_ended = 0, False, False
        self._weights = {
            _find_storage(parameter)._cdata: parameter for parameter in model.parameters()
        }
        self._ignored_storages = {
            _find_storage(tensor)._cdata for tensor in (*model.parameters(), *model.buffers())
        }
        self._owners: dict[int, int] = {}  # a weight's storage → the part that read it first
        self._alive: dict[int, list[int]] = {}  # a storage → its part and its bytes

    def __torch_dispatch__(
        self,
        operator: Any,
        types: Sequence[type],
        args: tuple = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if any(kind is DTensor or kind.__module__.startswith(FLOAT8) for kind in types):
            return NotImplemented  # is called again, part by part
        result = operator(*args, **(kwargs or {}))
        self._count(operator, args, kwargs or {}, result)
        return result

    def _count(self, operator: Any, args: tuple, kwargs: Mapping[str, Any], result: Any) -> None:
        """Count a call for the current part, and track the storages of its results."""
        self.parts[self.current].add(operator, args, kwargs, result)
        read = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        for tensor in read:
            if self._is_weight(tensor):
                first = self._owners.setdefault(tensor.untyped_storage()._cdata, self.current)
                self.tied |= first == 0 < self.current == len(self.parts) - 1
        cast = operator.name() == "aten::_to_copy" and self._is_weight(read[0])
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                (self._ignore_storage if cast else self._track_storage)(leaf.untyped_storage())

    def assign_to_part(self, tensors: Iterable[object], part: int) -> int:
        """Assign tensors to ``part``, which reads them, and return their bytes.

        Another part may have made them.
        """
        total = 0
        for tensor in tensors:
            if isinstance(tensor, Tensor) and (key := _find_storage(tensor)._cdata) in self._alive:
                self._alive[key][0] = part
                total += self._alive[key][1]
        return total

    def count_bytes(self, size: int) -> None:
        """Count bytes that an operation moves and torch does not report."""
        self.parts[self.current].elementwise_bytes += size

    def end_model_part(self, outputs: Tensor) -> None:
        """End the model's part of the pass.

        The loss's inputs count for the last part. What the loss itself keeps is not counted,
        because it depends on how the loss is computed.
        """
        self._has_ended = True
        self.parts[-1].output = _find_storage(outputs).nbytes()

    def finish(self, *outputs: Tensor) -> None:
        """End the pass: count what is still alive as kept. Call it once everything else has been
        freed.

        Args:
            outputs: tensors that are not counted.
        """
        # Free what only a cycle of references keeps alive.
        gc.collect()
        left_out = {_find_storage(tensor)._cdata for tensor in outputs}
        for key, (part, size) in self._alive.items():
            if key not in left_out:
                self.parts[part].kept_bytes += size
        for key, weight in self._weights.items():
            owner = self.parts[self._owners.get(key, len(self.parts) - 1)]
            count = getattr(weight, "_local_tensor", weight).numel()
            is_shared = isinstance(weight, DTensor) and any(p.is_shard() for p in weight.placements)
            owner.parameters += count
            owner.trainable += count * weight.requires_grad
            owner.replicated_parameters += count * (not is_shared)

    def _is_weight(self, tensor: Tensor) -> bool:
        return _find_storage(tensor)._cdata in self._weights

    def _ignore_storage(self, storage: torch.UntypedStorage) -> None:
        """Do not count a weight's converted copy, or a view of it, as it is not an activation."""
        self._ignored_storages.add(storage._cdata)
        # Another storage may get the same address once this one is freed.
        weakref.finalize(storage, self._ignored_storages.discard, storage._cdata)

    def _track_storage(self, storage: torch.UntypedStorage) -> None:
        """Count a storage for the current part until it is freed."""
        key = storage._cdata
        if (
            self._has_ended
            or not storage.nbytes()
            or key in self._alive
            or key in self._ignored_storages
        ):
            return
        self._alive[key] = [self.current, storage.nbytes()]
        # What is freed during the pass is not read by the backward pass.
        weakref.finalize(storage, self._alive.pop, key, None)


def trace_forward(
    workload: Workload,
    batch: Mapping[str, Tensor],
    *,
    precision: torch.dtype = torch.bfloat16,
    policy: str = "none",
    mesh: Any = None,
    real: bool = False,
) -> ForwardTrace:
    """Trace a forward pass of the batch, on this rank of ``mesh`` or alone.

    In bfloat16 a model whose workload sets ``follows_weights`` has bfloat16 weights, as FSDP2
    gathers them; any other model runs under autocast.

    Args:
        policy: ``activation_checkpointing``.
        mesh: one-dimensional mesh of tensor-parallel ranks; None for one rank.
        real: compute in real memory, for a model that reads values.

    Raises:
        TrainingError: the workload's model cannot be split over the mesh.
    """
    follows = getattr(workload, "follows_weights", False)
    model = workload.model() if real else build_on_meta(workload.model, 0)
    device = None if real else "meta"
    initial_values.replace_tensors(
        model,
        lambda tensor: _retype_tensor(tensor, precision if follows else torch.float32, device),
    )
    if mesh is not None:
        tensor_parallel.split_model(model, workload, mesh, sequence=False)
    blocks = [*workload.blocks(model)]
    settings = {"max_steps": 1, "global_batch": 1, "micro_batch": 1, "learning_rate": 1.0}
    adapt_blocks(
        blocks, TrainConfig.model_validate({**settings, "activation_checkpointing": policy})
    )
    inputs = workload.inputs(batch)
    model_kwargs: Mapping[str, Tensor] = getattr(workload, "model_kwargs", lambda _: {})(batch)
    autocast = torch.autocast("cpu", precision, enabled=precision != torch.float32 and not follows)
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    convert = (lambda tensor: tensor) if real else fake.from_tensor
    with nullcontext() if real else fake:
        allocate_storages(model)
        counter = PartCounter(model, len(blocks) + 2 if blocks else 1)
        with (
            counter,
            imitate_cuda_kernels(counter.count_bytes),
            _track_running_part(blocks, counter),
            autocast,
        ):
            outputs = model(
                *map(convert, inputs), **{n: convert(tensor) for n, tensor in model_kwargs.items()}
            )
            counter.end_model_part(outputs)
            if mesh is None:
                wide = outputs.to(torch.promote_types(outputs.dtype, torch.float32))
                loss = workload.loss(
                    wide, {name: convert(tensor) for name, tensor in batch.items()}
                )
                counter.finish(outputs, wide, loss)
            else:
                counter.finish(outputs)
    return ForwardTrace(counter.parts, outputs.numel(), counter.tied)


@contextmanager
def _track_running_part(blocks: Sequence[nn.Module], counter: PartCounter) -> Iterator[None]:
    """Context in which ``counter.current`` is the number of the part that is running."""

    def begin(number: int) -> Callable:
        """Return the hook that runs before block ``number``."""

        def start_block(module: nn.Module, args: tuple, kwargs: dict) -> None:
            """Make the block the current part, and assign its inputs to it."""
            counter.current = number
            input_bytes = counter.assign_to_part(tree_leaves((args, kwargs)), number)
            if number == 1:
                counter.parts[0].output = input_bytes

        return start_block

    def end_block(module: nn.Module, args: tuple, output: Any) -> None:
        """Hook that runs after each block."""
        tensors = [leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor)]
        counter.parts[counter.current].output = sum(
            _find_storage(tensor).nbytes() for tensor in tensors
        )
        counter.current += 1  # what follows counts for the next part, until the next block begins
        counter.assign_to_part(tensors, counter.current)

    handles = []
    for number, block in enumerate(blocks, 1):
        handles.append(block.register_forward_pre_hook(begin(number), with_kwargs=True))
        handles.append(block.register_forward_hook(end_block))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _retype_tensor(tensor: Tensor, weights: torch.dtype, device: str | None) -> Tensor:
    """Return the tensor, a float32 weight cast to the type ``weights``; if a device is given, an
    empty tensor like it there.
    """
    is_weight = isinstance(tensor, nn.Parameter) and tensor.dtype == torch.float32
    dtype = weights if is_weight else tensor.dtype
    return (
        tensor.to(dtype) if device is None else torch.empty_like(tensor, device=device, dtype=dtype)
    )


def _find_storage(tensor: Tensor) -> torch.UntypedStorage:
    return getattr(tensor, "_local_tensor", tensor).untyped_storage()


def allocate_storages(model: nn.Module) -> None:
    """Give tensors on meta storages, so that their bytes are counted.

    A fake tensor cannot be swapped into a parameter as ``initial_values.materialize_tensors``
    does; a DTensor of fake tensors can.
    """
    initial_values.replace_tensors(
        model, lambda tensor: _make_empty(tensor) if isinstance(tensor, DTensor) else tensor
    )
    replacements: dict[int, nn.Parameter] = {}
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None and parameter.is_meta and id(parameter) not in replacements:
                replacements[id(parameter)] = nn.Parameter(
                    _make_empty(parameter), requires_grad=parameter.requires_grad
                )
            if parameter is not None and parameter.is_meta:
                module._parameters[name] = replacements[id(parameter)]
        for name, buffer in module._buffers.items():
            if buffer is not None and buffer.is_meta:
                module._buffers[name] = _make_empty(buffer)


def _make_empty(tensor: Tensor) -> Tensor:
    if isinstance(tensor, DTensor):
        return torch.empty_like(tensor, device="cpu")
    return torch.empty(tensor.shape, dtype=tensor.dtype)


@contextmanager
def act_as_rank(rank: int, world: int) -> Iterator[Ranks]:
    """Context in which this process acts as ``rank`` of ``world``; no other process is needed.

    torch's ``fake`` backend completes each collective at once and leaves the tensors as they are.
    """
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
    try:
        yield Ranks(rank, rank, world, torch.device("cpu"))
    finally:
        dist.destroy_process_group()


# A trace runs on CPU tensors, because torch without CUDA has no backward pass for CUDA tensors.
# Attention (flash on both devices), matrix products and the fused optimizer keep the same tensors
# on both; the operations below do not.


class FusedRmsNorm(torch.autograd.Function):
    """Imitates CUDA's ``aten::_fused_rms_norm``, which keeps its input, its weight and one float32
    per row.

    On the CPU the norm is composed of five operations, some in float32, and what each of them needs
    is kept.
    """

    @staticmethod
    def forward(context: Any, x: Tensor, shape: Sequence[int], weight: Tensor | None) -> Tensor:
        rows = x.shape[: x.dim() - len(shape)]
        context.save_for_backward(x, weight, torch.empty(rows, dtype=torch.float32))
        return torch.empty_like(x)

    @staticmethod
    def backward(context: Any, *gradients: Any) -> tuple[Tensor | None, ...]:
        x, weight, _ = context.saved_tensors
        return torch.empty_like(x), None, None if weight is None else torch.empty_like(weight)


@contextmanager
def imitate_cuda_kernels(count_bytes: Callable[[int], None] = lambda size: None) -> Iterator[None]:
    """Context in which operations keep the tensors that they would keep on a CUDA device.

    Args:
        count_bytes: called with the bytes that such an operation reads and writes, which torch does
            not report.
    """

    def rms_norm(
        x: Tensor, shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
    ) -> Tensor:
        count_bytes(2 * x.numel() * x.element_size())
        return FusedRmsNorm.apply(x, shape, weight)

    with patch.object(F, "rms_norm", rms_norm):
        yield
