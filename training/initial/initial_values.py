"""What a tensor begins with: a part of it can be asked for, whatever the sharding."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from safetensors import safe_open
from torch import Tensor

from trainyard.common.errors import TrainingError

Part = tuple[slice, ...]
"""Along each dimension of the whole tensor, what of it is held: contiguous, step 1."""


def whole(shape: torch.Size) -> Part:
    """All of a tensor."""
    return tuple(slice(0, size) for size in shape)


def held(tensor: Tensor) -> Part:
    """What this rank holds of a tensor, all of one that is not distributed.

    Raises:
        TrainingError: it is laid out in a way that is not known here.
    """
    placements = getattr(tensor, "placements", None)
    if placements is None:
        return whole(tensor.shape)
    mesh = tensor.device_mesh
    found = held_at(tensor.shape, placements, mesh.mesh.shape, mesh.get_coordinate())
    shape = tuple(one.stop - one.start for one in found)
    if shape != tuple(tensor.to_local().shape):
        raise TrainingError(
            f"a tensor {tuple(tensor.shape)} with placements {placements} has a part "
            f"{tuple(tensor.to_local().shape)} on this rank, expected {shape}: it was sharded by "
            "other means than distribute_tensor and fully_shard; set train.loop.strategy to ddp"
        )
    return found


def held_at(
    shape: torch.Size, placements: Sequence, sizes: Sequence[int], coordinate: Sequence[int]
) -> Part:
    """What the rank at a coordinate holds of a DTensor, on a mesh of these sizes."""
    found = [*whole(shape)]
    for dimension in _order(placements):
        cut, along = placements[dimension].dim, coordinate[dimension]
        found[cut] = _chunk(found[cut], along, sizes[dimension])
    return tuple(found)


def _order(placements: Sequence) -> list[int]:
    """The mesh's dimensions in the order in which they have cut the tensor.

    fully_shard cuts what tensor parallelism has cut before it, though its dimension of the mesh
    comes first: torch calls such a placement a strided shard.
    """
    shards = [n for n, one in enumerate(placements) if hasattr(one, "dim")]
    strided = [n for n in shards if hasattr(placements[n], "split_factor")]
    return [n for n in shards if n not in strided] + strided[::-1]


def _chunk(of: slice, index: int, count: int) -> slice:
    """As torch.chunk cuts: pieces of equal length, the last ones shorter or empty."""
    size = of.stop - of.start
    length = -(-size // count)
    start, stop = (of.start + min(size, length * n) for n in (index, index + 1))
    return slice(start, stop)


def local(tensor: Tensor) -> Tensor:
    """This rank's part: of a DTensor its own, of any other tensor all.

    DTensor is not imported for it: evaluation and serving have none, and it brings SymPy along,
    together a second of a processor in each process.
    """
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


class Value(Protocol):
    """The value of one tensor."""

    def write(self, part: Part, into: Tensor) -> None:
        """Write ``part`` of it ``into`` a tensor of the part's shape, on any device."""


@dataclass(frozen=True)
class Known:
    """A tensor that is there already."""

    tensor: Tensor

    def write(self, part: Part, into: Tensor) -> None:
        into.copy_(self.tensor[part] if part else self.tensor)


DTYPES = {
    **{"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16},
    **{"I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8},
    **{"U8": torch.uint8, "BOOL": torch.bool},
}
"""Types by safetensors' names for them (https://huggingface.co/docs/safetensors, "Format")."""

AT_ONCE = 2**20
"""Elements that are read of a file at once, unless a row has more."""


@dataclass(frozen=True)
class Stored:
    """A tensor in a safetensors file, of which only the part that is asked for is read: some rows
    after the other, since what is read is in memory twice.
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
    """Each tensor of a safetensors file, and what is said of it; none is read.

    Raises:
        ValueError: one is of a type that is not known here.
    """
    with safe_open(path, framework="pt") as file:
        for name in file.keys():  # noqa: SIM118  it is no dictionary
            one = file.get_slice(name)
            if one.get_dtype() not in DTYPES:
                raise ValueError(f"{path}: {name} is {one.get_dtype()}, known {', '.join(DTYPES)}")
            yield Stored(path, name), torch.Size(one.get_shape()), DTYPES[one.get_dtype()]
