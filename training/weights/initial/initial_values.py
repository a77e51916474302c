"""Initial value of a tensor; any part of it can be requested, whatever the sharding is."""

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import safe_open
from torch import Tensor, nn

from trainyard.common.errors import TrainingError

Part = tuple[slice, ...]
"""Range that is held along each dimension of the whole tensor: contiguous, step 1."""


def make_whole_part(shape: Sequence[int]) -> Part:
    """Return the part that is the whole tensor."""
    return tuple(slice(0, size) for size in shape)


def find_local_part(tensor: Tensor) -> Part:
    """Return the part of a tensor that this rank holds: all of it if it is not distributed.

    Raises:
        TrainingError: the tensor's layout is not supported.
    """
    placements = getattr(tensor, "placements", None)
    if placements is None:
        return make_whole_part(tensor.shape)
    dtensor: Any = tensor  # a DTensor, whose module takes long to import
    mesh = dtensor.device_mesh
    part = compute_part_at(tensor.shape, placements, mesh.mesh.shape, mesh.get_coordinate())
    shape = tuple(bounds.stop - bounds.start for bounds in part)
    if shape != tuple(dtensor.to_local().shape):
        raise TrainingError(
            f"a tensor {tuple(tensor.shape)} with placements {placements} has a part "
            f"{tuple(dtensor.to_local().shape)} on this rank, expected {shape}: it was sharded by "
            "other means than distribute_tensor and fully_shard; set train.loop.strategy to ddp"
        )
    return part


def compute_part_at(
    shape: torch.Size, placements: Sequence, sizes: Sequence[int], coordinate: Sequence[int]
) -> Part:
    """Return the part of a DTensor that the rank at ``coordinate`` holds, on a mesh of these
    sizes.
    """
    part = [*make_whole_part(shape)]
    for dimension in _order_dimensions(placements):
        cut, index = placements[dimension].dim, coordinate[dimension]
        # Cut as torch.chunk does: pieces of equal length, the last ones shorter or empty.
        bounds = part[cut]
        size = bounds.stop - bounds.start
        length = -(-size // sizes[dimension])
        start, stop = (bounds.start + min(size, length * n) for n in (index, index + 1))
        part[cut] = slice(start, stop)
    return tuple(part)


def _order_dimensions(placements: Sequence) -> list[int]:
    """Return the mesh's dimensions in the order in which they cut the tensor.

    fully_shard cuts what tensor parallelism has already cut, although fully_shard's dimension comes
    first in the mesh: torch calls such a placement a strided shard.
    """
    shards = [n for n, placement in enumerate(placements) if hasattr(placement, "dim")]
    strided_shards = [n for n in shards if hasattr(placements[n], "split_factor")]
    return [n for n in shards if n not in strided_shards] + strided_shards[::-1]


def to_local_tensor(tensor: Tensor) -> Tensor:
    """Return this rank's part of a DTensor, or any other tensor whole.

    DTensor is not imported for this: evaluation and serving do not use it, and it imports SymPy,
    which together takes a second of CPU time in each process.
    """
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


class Value(Protocol):
    """The initial value of one tensor."""

    def write(self, part: Part, into: Tensor) -> None:
        """Write ``part`` of the value into ``into``, a tensor of the part's shape on any device."""


@dataclass(frozen=True)
class ExistingValue:
    """The value of a tensor that already exists."""

    tensor: Tensor

    def write(self, part: Part, into: Tensor) -> None:
        into.copy_(self.tensor[part] if part else self.tensor)


DTYPES = {
    **{"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16},
    **{"I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8},
    **{"U8": torch.uint8, "BOOL": torch.bool},
}
"""Mapping of safetensors' names to types (https://huggingface.co/docs/safetensors, "Format")."""

AT_ONCE = 2**20
"""Number of elements that are read from a file at once, unless a row has more."""


@dataclass(frozen=True)
class StoredValue:
    """A tensor in a safetensors file, of which only the requested part is read.

    It is read a few rows at a time, because what is read is in memory twice.
    """

    path: Path
    name: str

    def write(self, part: Part, into: Tensor) -> None:
        if not into.numel():
            return
        with safe_open(self.path, framework="pt") as file:
            if not part:
                into.copy_(file.get_tensor(self.name))
                return
            content, (rows, *columns) = file.get_slice(self.name), part
            count = max(1, AT_ONCE * len(into) // into.numel())
            for first in range(0, len(into), count):
                block = into[first : first + count]
                begin = rows.start + first
                block.copy_(content[(slice(begin, begin + len(block)), *columns)])


def list_values(path: Path) -> Iterator[tuple[StoredValue, torch.Size, torch.dtype]]:
    """Yield each tensor of a safetensors file with its shape and type, without reading its values.

    Raises:
        ValueError: a tensor has an unsupported type.
    """
    with safe_open(path, framework="pt") as file:
        for name in file.keys():  # noqa: SIM118  it is not a dictionary
            tensor_slice = file.get_slice(name)
            if tensor_slice.get_dtype() not in DTYPES:
                raise ValueError(
                    f"{path}: {name} is {tensor_slice.get_dtype()}; supported: {', '.join(DTYPES)}"
                )
            yield (
                StoredValue(path, name),
                torch.Size(tensor_slice.get_shape()),
                DTYPES[tensor_slice.get_dtype()],
            )


# Allocating memory for a model on meta, and writing its initial values.

Values = Mapping[str, Value]
"""Mapping of each name of a parameter or buffer to its initial value."""


@torch.no_grad()
def materialize_tensors(
    model: nn.Module, values: Values, device: torch.device, weights: torch.device | None = None
) -> None:
    """Allocate memory on ``device`` for every tensor on meta, and write its part of its initial
    value.

    Args:
        weights: device of the parameters, if different (``cpu_offload``).

    Raises:
        TrainingError: a tensor on meta has a name that does not exist in the whole model.
    """
    waiting = {name: tensor for name, tensor in list_named_tensors(model).items() if tensor.is_meta}
    # Reversed, so that a tied tensor has the first of its names.
    names_by_id = {id(tensor): name for name, tensor in reversed(waiting.items())}
    for name in names_by_id.values():
        if name not in values:
            raise TrainingError(
                f"{name} of the split model is not a weight or buffer of the whole one, so nothing "
                "is known of its value: keep names in Workload.stage and Workload.tensor_parallel"
            )

    def allocate_tensor(tensor: Tensor) -> Tensor:
        target_device = weights if weights and isinstance(tensor, nn.Parameter) else device
        return torch.empty_like(tensor, device=target_device) if tensor.is_meta else tensor

    replace_tensors(model, allocate_tensor)
    real_tensors = list_named_tensors(model)
    for name in names_by_id.values():
        tensor = real_tensors[name]
        values[name].write(find_local_part(tensor), getattr(tensor, "_local_tensor", tensor))


def list_named_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return parameters and buffers under all their names, including those that are not saved."""
    parameters = model.named_parameters(remove_duplicate=False)
    return {**dict(parameters), **dict(model.named_buffers(remove_duplicate=False))}


def replace_tensors(model: nn.Module, convert: Callable[[Tensor], Tensor]) -> None:
    """Replace every parameter and buffer by the result of ``convert``, which is called once for
    tied ones.

    A parameter stays the same object, because modules may also keep it in attributes.
    """
    replacements: dict[int, Tensor] = {}
    # Keeps them alive, so that no new object gets the id of a freed one.
    originals: list[Tensor] = []
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                originals.append(parameter)
                if id(parameter) not in replacements:
                    replacements[id(parameter)] = _swap_content(parameter, convert(parameter))
                if replacements[id(parameter)] is not parameter:
                    setattr(module, name, replacements[id(parameter)])
        for name, buffer in module._buffers.items():
            if buffer is not None:
                originals.append(buffer)
                if id(buffer) not in replacements:
                    replacements[id(buffer)] = convert(buffer)
                module._buffers[name] = replacements[id(buffer)]
    model._apply(lambda tensor: tensor)  # makes FSDP2 look up its parameters again


def _swap_content(parameter: Tensor, content: Tensor) -> Tensor:
    """Give the parameter other content and return it; return a new one if that is impossible."""
    if content is parameter:
        return parameter
    new = nn.Parameter(content, requires_grad=parameter.requires_grad)
    new.__class__ = parameter.__class__  # type: ignore[assignment]  # a Parameter's, or DTensor's
    new.__dict__.update(parameter.__dict__)
    # Such a parameter cannot be swapped; nn.LSTM has these references, and setattr renews them.
    if weakref.getweakrefs(parameter):
        return new
    torch.utils.swap_tensors(parameter, new)
    return parameter
