"""Replicated weights; Horovod adds up the gradients while backward runs (Sergeev & Del Balso 2018).

Its API is horovod.torch 0.28 (horovod.readthedocs.io/en/stable/api.html#module-horovod.torch).
Checkpoints and what the ranks tell each other go through torch's own process group.
"""

from torch import Tensor, nn

from training.config import TrainConfig
from training.strategies.ranks import Ranks
from training.strategies.single import Single
from training.workloads import Workload
from trainyard.common.errors import TrainingError


class Horovod(Single):
    """Horovod's DistributedOptimizer around ours."""

    def __init__(self, config: TrainConfig, workload: Workload, ranks: Ranks) -> None:
        super().__init__(config, workload, ranks)
        self.data_rank, self.data_world = ranks.rank, ranks.world
        try:
            import horovod.torch as hvd
        except ModuleNotFoundError as error:
            if error.name not in ("horovod", "horovod.torch"):
                raise
            raise TrainingError(
                "strategy horovod: the package horovod is not in the image, as it is in none of "
                "AWS's: name one of your own in images.training, with horovod[pytorch]==0.28.1 "
                "built against its torch, or set strategy to ddp"
            ) from None
        hvd.init()
        if (hvd.rank(), hvd.size()) != (ranks.rank, ranks.world):
            raise TrainingError(
                f"strategy horovod: Horovod sees rank {hvd.rank()} of {hvd.size()}, the launcher "
                f"says {ranks.rank} of {ranks.world}; start the job with mpirun: set "
                "train.launcher to mpi"
            )
        self._hvd = hvd

    def prepare(self, model: nn.Module) -> None:
        hvd = self._hvd
        super().prepare(model)
        hvd.broadcast_parameters(self.model.state_dict(), root_rank=0)
        self.optimizer = hvd.DistributedOptimizer(
            self.optimizer,
            named_parameters=self.model.named_parameters(),
            backward_passes_per_step=self.config.micro_batches(self.ranks.world),
            op=hvd.Average,  # Single.backward has the number of ranks in it: the sum again
        )

    def clip(self) -> Tensor:
        self.optimizer.synchronize()
        return super().clip()

    def update(self, rate: float, finite: Tensor) -> None:
        with self.optimizer.skip_synchronize():  # clip has
            super().update(rate, finite)
