"""Replicated weights; gradients are averaged over the ranks while backward runs."""

import warnings
from contextlib import AbstractContextManager

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from training.config import TrainConfig
from training.strategies.ranks import Ranks
from training.strategies.single import Strategy
from training.workloads import Workload

# Ignore the warning that no parameter was unused; the search costs 0.3 to 4 % of a step
# (docs/training.md).
warnings.filterwarnings("ignore", "find_unused_parameters=True was specified")
# The new name of the argument does not exist in the torch of AWS's images with SMDDP.
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
            broadcast_buffers=False,  # MicroBatches handles buffers
            # With this, a weight that got no gradient on any rank has none, as with one process;
            # without it a step could use gradients that were never summed. It also makes DDP keep
            # its buckets in their initial order, so that a resumed process sums in the same order
            # as before.
            find_unused_parameters=True,
        )

    def leave(self) -> None:
        """Release DDP's reducer while the process group still exists.

        The reducer's destructor runs with Python's lock. If it has the last reference to the group,
        it waits for gloo's threads, and a thread that releases a collective's tensors waits for
        that lock: a deadlock.
        """
        module = vars(self).get("forward")
        for name in ("reducer", "logger"):  # the logger references the reducer, too
            if hasattr(module, name):
                delattr(module, name)

    def defer_gradient_sync(self) -> AbstractContextManager:
        assert isinstance(self.forward, DistributedDataParallel)  # wrap created it
        return self.forward.no_sync()
