"""What goes from one pipeline stage to the next, told in numbers."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from trainyard.common.errors import TrainingError

HEADER = 64
"""Numbers in a description."""

TYPES = (
    *(torch.float32, torch.float64, torch.bfloat16, torch.float16),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
)


def described(tensors: Sequence[Tensor], *, trained: bool) -> list[int]:
    """Types and shapes as numbers, and whether gradients flow back.

    Raises:
        TrainingError: it is nothing that can be sent; or more than there is room for.
    """
    numbers = [int(trained)]
    for tensor in tensors:
        if not isinstance(tensor, Tensor) or tensor.dtype not in TYPES:
            raise TrainingError(
                f"a pipeline stage gives {getattr(tensor, 'dtype', type(tensor).__name__)}: let "
                f"Workload.stage make one that gives tensors of {', '.join(map(str, TYPES))}"
            )
        numbers += [1 + TYPES.index(tensor.dtype), tensor.dim(), *tensor.shape]
    if len(numbers) > HEADER:
        raise TrainingError(
            f"a pipeline stage gives {len(tensors)} tensors, whose shapes take {len(numbers)} "
            f"numbers; {HEADER} fit: let Workload.stage make one that gives fewer"
        )
    return numbers + [0] * (HEADER - len(numbers))


def like(numbers: Sequence[int]) -> tuple[Tensor, ...]:
    """Tensors on meta of which ``described`` would say these numbers."""
    trained, rest, found = bool(numbers[0]), list(numbers[1:]), []
    while rest and rest[0]:
        kind, dimensions, *rest = rest
        shape, rest = rest[:dimensions], rest[dimensions:]
        tensor = torch.empty(shape, dtype=TYPES[kind - 1], device="meta")
        found.append(tensor.requires_grad_(trained and tensor.is_floating_point()))
    return tuple(found)


def sendable(output: object) -> object:
    """What a stage gives, as it can be sent: whole and in order.

    Raises:
        TrainingError: it lies over tensor-parallel ranks.
    """
    if isinstance(output, (tuple, list)):
        return tuple(sendable(one) for one in output)
    if isinstance(output, DTensor):
        raise TrainingError(
            f"a pipeline stage gives a DTensor ({output.placements}): let Workload.tensor_parallel "
            "end the stage with use_local_output=True, so that each rank sends what it has"
        )
    return output.contiguous() if isinstance(output, Tensor) else output
