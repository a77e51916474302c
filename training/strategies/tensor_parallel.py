"""Tensor parallel: a workload splits its own model; this is the part that is common to all.

This is a separate module because torch's part takes half a second to import, and only a mesh with
tensor parallelism needs it.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import loss_parallel

from training.workloads import Workload


def split_model(model: nn.Module, workload: Workload, mesh: DeviceMesh, sequence: bool) -> None:
    """Let the workload split its model over the mesh.

    Frozen weights stay frozen: torch's ``SequenceParallel`` would create trainable ones.

    Args:
        sequence: split along the sequence as well, if the workload can.
    """
    frozen = {name for name, weight in model.named_parameters() if not weight.requires_grad}
    along = getattr(workload, "sequence_parallel", None) if sequence else None
    (along or workload.tensor_parallel)(model, mesh)
    for name, parameter in model.named_parameters():
        if name in frozen:
            parameter.requires_grad_(False)


def allow_sharded_logits(workload: Workload) -> AbstractContextManager:
    """Context for forward and backward passes in which logits may be sharded over the classes."""
    return loss_parallel() if _accepts_sharded_logits(workload) else nullcontext()


def compute_loss(workload: Workload, loss: Callable[[Tensor], Tensor], outputs: Tensor) -> Tensor:
    """Return the loss of outputs that may be spread over the ranks; it is the same on each rank.

    A workload's ``loss`` gets the outputs as they are if it declares support for that
    (``loss_parallel``), otherwise whole.
    """
    if isinstance(outputs, DTensor) and not _accepts_sharded_logits(workload):
        outputs = outputs.full_tensor()
    result = loss(outputs)
    return result.full_tensor() if isinstance(result, DTensor) else result


def _accepts_sharded_logits(workload: Workload) -> bool:
    return getattr(workload, "loss_parallel", False)
