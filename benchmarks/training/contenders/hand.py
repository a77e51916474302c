"""A loop as a good engineer writes it here: DistributedDataParallel, AdamW, nothing else."""

import contextlib
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from benchmarks.training.setting import Setting, print_mean_loss, read_setting


def compute_mean_loss(model: nn.Module, tokens: Tensor, setting: Setting) -> Tensor:
    """Return the mean cross-entropy of the next tokens."""
    half = setting.precision == "bfloat16"
    with torch.autocast("cpu", torch.bfloat16) if half else contextlib.nullcontext():
        logits = model(tokens[:, :-1])
    return F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())


def train_steps(
    model: nn.Module, optimizer: Optimizer, setting: Setting, rank: int, world: int
) -> None:
    """Train on this rank's share of every step."""
    for step, tokens in enumerate(setting.iter_share(rank, world), 1):
        for group in optimizer.param_groups:
            group["lr"] = setting.rates[step - 1]
        loss = compute_mean_loss(model, tokens, setting)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), setting.grad_clip)
        optimizer.step()
        optimizer.zero_grad()
        if setting.is_logged(step):
            print_mean_loss(step, loss)


def main() -> None:
    setting = read_setting()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(setting.model(), gradient_as_bucket_view=True)
    optimizer = setting.optimizer(model)
    train_steps(model, optimizer, setting, rank, world)
    if rank == 0:
        state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(state, Path(setting.output) / "checkpoint.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
