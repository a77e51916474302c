"""Replicated weights; gradients are averaged over the ranks while backward runs."""

from contextlib import AbstractContextManager

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from training.config import TrainConfig
from training.strategies.ranks import Ranks
from training.strategies.single import Batch, Single
from training.workloads import Workload


class Ddp(Single):
    """torch's DistributedDataParallel."""

    def __init__(self, config: TrainConfig, workload: Workload, ranks: Ranks) -> None:
        super().__init__(config, workload, ranks)
        self.data_rank, self.data_world = ranks.rank, ranks.world

    def wrap(self, model: nn.Module) -> nn.Module:
        device = self.ranks.device
        devices = [device.index] if device.type == "cuda" else None
        return DistributedDataParallel(model, device_ids=devices, gradient_as_bucket_view=True)

    def accumulating(self) -> AbstractContextManager:
        return self.forward.no_sync()

    def rehearse(self, batch: Batch) -> None:
        """Let DDP order its buckets, which it does after the first backward pass of a process.

        The order decides which ranks' gradients are added first: with more than two ranks the
        first step after a resume would differ in the last bits.
        """
        self.loss(self.forward, batch).backward()
        self.optimizer.zero_grad()
