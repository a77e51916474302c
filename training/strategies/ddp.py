"""Replicated weights; gradients are averaged over the ranks while backward runs."""

import warnings
from contextlib import AbstractContextManager

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from training.config import TrainConfig
from training.strategies.ranks import Ranks
from training.strategies.single import Strategy
from training.workloads import Workload

# The warning says that no parameter was unused; the search costs 0.3 to 4 % of a step
# (docs/training.md).
warnings.filterwarnings("ignore", "find_unused_parameters=True was specified")
# Its new name is not known to the torch of AWS's images with SMDDP.
warnings.filterwarnings("ignore", "`broadcast_buffers` is deprecated", FutureWarning)


class Ddp(Strategy):
    """Strategy that uses torch's DistributedDataParallel."""

    def __init__(self, config: TrainConfig, workload: Workload, ranks: Ranks) -> None:
        super().__init__(config, workload, ranks)
        self.data_rank, self.data_world = ranks.rank, ranks.world

    def wrap(self, model: nn.Module) -> nn.Module:
        device = self.ranks.device
        devices = [device.index] if device.type == "cuda" else None
        return DistributedDataParallel(
            model,
            device_ids=devices,
            gradient_as_bucket_view=True,
            broadcast_buffers=False,  # MicroBatches handles them
            # A weight that got no gradient on any rank has none, as with one process; without it a
            # step could use gradients that were never added up. And DDP leaves its buckets in the
            # order in which a process begins with them, so a resumed one adds up as before.
            find_unused_parameters=True,
        )

    def leave(self) -> None:
        """Release DDP's reducer while the process group still exists.

        Its destructor runs with Python's lock. If it has the group's last reference, it waits
        there for gloo's threads; one that lets go of a collective's tensors waits for the lock.
        """
        module = vars(self).get("forward")
        for name in ("reducer", "logger"):  # which also references the reducer
            if hasattr(module, name):
                delattr(module, name)

    def accumulating(self) -> AbstractContextManager:
        assert isinstance(self.forward, DistributedDataParallel)  # wrap has made it
        return self.forward.no_sync()
