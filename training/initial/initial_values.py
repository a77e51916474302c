"""Initial value of a tensor; any part of it can be requested, whatever the sharding."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import safe_open
from torch import Tensor

from trainyard.common.errors import TrainingError

Part = tuple[slice, ...]
"""Range held along each dimension of the whole tensor: contiguous, step 1."""


def whole(shape: Sequence[int]) -> Part:
    """Return the part that is the whole tensor."""
    return tuple(slice(0, size) for size in shape)


def local_part(tensor: Tensor) -> Part:
    """Return the part of a tensor that this rank holds: all of it if it is not distributed.

    Raises:
        TrainingError: its layout is not supported.
    """
    placements = getattr(tensor, "placements", None)
    if placements is None:
        return whole(tensor.shape)
    parted: Any = tensor  # a DTensor, whose module takes long to load
    mesh = parted.device_mesh
    found = held_at(tensor.shape, placements, mesh.mesh.shape, mesh.get_coordinate())
    shape = tuple(one.stop - one.start for one in found)
    if shape != tuple(parted.to_local().shape):
        raise TrainingError(
            f"a tensor {tuple(tensor.shape)} with placements {placements} has a part "
            f"{tuple(parted.to_local().shape)} on this rank, expected {shape}: it was sharded by "
            "other means than distribute_tensor and fully_shard; set train.loop.strategy to ddp"
        )
    return found


def held_at(
    shape: torch.Size, placements: Sequence, sizes: Sequence[int], coordinate: Sequence[int]
) -> Part:
    """Return the part of a DTensor held by the rank at a coordinate, on a mesh of these sizes."""
    found = [*whole(shape)]
    for dimension in _order(placements):
        cut, along = placements[dimension].dim, coordinate[dimension]
        found[cut] = _chunk(found[cut], along, sizes[dimension])
    return tuple(found)


def _order(placements: Sequence) -> list[int]:
    """Return the mesh's dimensions in the order in which they cut the tensor.

    fully_shard cuts what tensor parallelism has cut before it, though its dimension of the mesh
    comes first: torch calls such a placement a strided shard.
    """
    shards = [n for n, one in enumerate(placements) if hasattr(one, "dim")]
    strided = [n for n in shards if hasattr(placements[n], "split_factor")]
    return [n for n in shards if n not in strided] + strided[::-1]


def _chunk(of: slice, index: int, count: int) -> slice:
    """Cut as torch.chunk does: pieces of equal length, the last ones shorter or empty."""
    size = of.stop - of.start
    length = -(-size // count)
    start, stop = (of.start + min(size, length * n) for n in (index, index + 1))
    return slice(start, stop)


def local(tensor: Tensor) -> Tensor:
    """Return this rank's part of a DTensor, or any other tensor whole.

    DTensor is not imported for this: evaluation and serving do not use it, and it imports SymPy,
    together a second of CPU time in each process.
    """
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


class Value(Protocol):
    """The initial value of one tensor."""

    def write(self, part: Part, into: Tensor) -> None:
        """Write ``part`` of the value ``into`` a tensor of the part's shape, on any device."""


@dataclass(frozen=True)
class Known:
    """The value of a tensor that already exists."""

    tensor: Tensor

    def write(self, part: Part, into: Tensor) -> None:
        into.copy_(self.tensor[part] if part else self.tensor)


DTYPES = {
    **{"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16},
    **{"I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8},
    **{"U8": torch.uint8, "BOOL": torch.bool},
}
"""Types by their safetensors names (https://huggingface.co/docs/safetensors, "Format")."""

AT_ONCE = 2**20
"""Elements read from a file at once, unless a row has more."""


@dataclass(frozen=True)
class Stored:
    """A tensor in a safetensors file, of which only the requested part is read, a few rows at a
    time, since what is read is in memory twice.
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
            there, (rows, *columns) = file.get_slice(self.name), part
            count = max(1, AT_ONCE * len(into) // into.numel())
            for first in range(0, len(into), count):
                block = into[first : first + count]
                begin = rows.start + first
                block.copy_(there[(slice(begin, begin + len(block)), *columns)])


def stored(path: Path) -> Iterator[tuple[Stored, torch.Size, torch.dtype]]:
    """Yield each tensor of a safetensors file with its shape and type; reads no values.

    Raises:
        ValueError: a tensor is of an unsupported type.
    """
    with safe_open(path, framework="pt") as file:
        for name in file.keys():  # noqa: SIM118  it is not a dictionary
            one = file.get_slice(name)
            if one.get_dtype() not in DTYPES:
                raise ValueError(f"{path}: {name} is {one.get_dtype()}, known {', '.join(DTYPES)}")
            yield Stored(path, name), torch.Size(one.get_shape()), DTYPES[one.get_dtype()]
