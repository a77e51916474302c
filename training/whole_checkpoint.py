"""Checkpoints of whole tensors, for a torch whose own cannot be written as safetensors.

torch.distributed.checkpoint writes safetensors from 2.8 on. AWS's newest images with SMDDP and SMP
have 2.3 to 2.5, and what these strategies hand out is whole. A newer torch reads the file, too.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from trainyard.common.errors import TrainingError


def write(folder: Path, tensors: Mapping[str, Tensor], rank: int) -> None:
    """Rank 0's tensors as one file, named as torch names a rank's.

    Raises:
        TrainingError: a tensor is only a part of one.
    """
    for name, tensor in tensors.items():
        if type(tensor) is not Tensor:
            raise TrainingError(
                f"{name} is sharded: with torch {torch.__version__} such a checkpoint cannot be "
                "written; take an image with torch 2.8 or newer"
            )
    if rank == 0:
        path = folder / "shard-00001-model-00001-of-00001.safetensors"
        save_file({n: t.detach().cpu().contiguous().clone() for n, t in tensors.items()}, path)


@torch.no_grad()
def read(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    """Fill the tensors from the folder's files.

    Raises:
        TrainingError: the files hold no such tensor, or one of another shape: they are parts,
            written by a newer torch.
    """
    missing = dict(tensors)
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in missing.keys() & set(file.keys()):
                found = file.get_tensor(name)
                if found.shape == missing[name].shape:
                    missing.pop(name).copy_(found)
    if missing:
        raise TrainingError(
            f"{folder}: holds {min(missing)} not as a whole; the training that wrote it had a "
            f"newer torch than {torch.__version__} and sharded weights: resume it in its image"
        )
