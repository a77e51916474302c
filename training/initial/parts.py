"""Which part of a tensor this rank holds."""

from collections.abc import Sequence

import torch
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
