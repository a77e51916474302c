"""Tensor parallel: a workload splits its own model; this is the part common to all."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import loss_parallel

from training.workloads import Workload


def split(model: nn.Module, workload: Workload, mesh: DeviceMesh, sequence: bool) -> None:
    """Let the workload split its model over the mesh, along the sequence too if it can.

    Frozen weights stay frozen: torch's ``SequenceParallel`` creates trainable ones.
    """
    frozen = {name for name, weight in model.named_parameters() if not weight.requires_grad}
    along = getattr(workload, "sequence_parallel", None) if sequence else None
    (along or workload.tensor_parallel)(model, mesh)
    for name, parameter in model.named_parameters():
        if name in frozen:
            parameter.requires_grad_(False)


def losses(workload: Workload) -> AbstractContextManager:
    """Context for forward and backward passes with logits sharded over the classes."""
    return loss_parallel() if _takes_parts(workload) else nullcontext()


def score(workload: Workload, loss: Callable[[Tensor], Tensor], outputs: Tensor) -> Tensor:
    """Return the loss of outputs that may be spread over the ranks; the same on each of them.

    A workload's ``loss`` gets them as they are if it declares support
    (``loss_parallel``), otherwise whole.
    """
    if isinstance(outputs, DTensor) and not _takes_parts(workload):
        outputs = outputs.full_tensor()
    result = loss(outputs)
    return result.full_tensor() if isinstance(result, DTensor) else result


def _takes_parts(workload: Workload) -> bool:
    return getattr(workload, "loss_parallel", False)
