"""Weights sharded by SageMaker's model parallelism library v2 (SMP), on top of PyTorch's FSDP.

It follows "Use the SageMaker model parallelism library v2" (SageMaker Developer Guide,
model-parallel-use-api-v2.html): ``tsm.init()`` reads the job's settings, and an FSDP model is
sharded over ``hybrid_shard_degree`` ranks instead of all ("Hybrid sharded data parallelism", where
the script names no sharding strategy). ``tsm.transform`` and with it SMP's tensor parallelism are
for Hugging Face models only (distributed-model-parallel-v2-reference), so a workload's own model is
passed to FSDP as it is.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from training import optimizers
from training.config import TrainConfig
from training.strategies.ranks import Ranks
from training.strategies.single import Batch, Strategy
from training.workloads import Workload
from trainyard.common.errors import TrainingError

if TYPE_CHECKING:
    from torch.distributed.checkpoint.state_dict import StateDictOptions
    from torch.distributed.fsdp import FullyShardedDataParallel

# FSDP's prefix in the names of a wrapped block's parameters.
WRAPPED_PREFIX = "_fsdp_wrapped_module."


class Smp(Strategy):
    """FSDP as extended by SMP; every rank is data-parallel."""

    forward: "FullyShardedDataParallel"

    def __init__(self, config: TrainConfig, workload: Workload, ranks: Ranks) -> None:
        super().__init__(config, workload, ranks)
        self.data_rank, self.data_world = ranks.rank, ranks.world
        try:
            import torch.sagemaker as tsm
        except ModuleNotFoundError as error:
            if error.name != "torch.sagemaker":
                raise
            raise TrainingError(
                "strategy smp: torch.sagemaker is not in this image; leave images.training out "
                "for AWS's SMP image (smdistributed-modelparallel), or set strategy to fsdp"
            ) from None
        tsm.init()

    def prepare(self, model: nn.Module) -> None:
        decay = optimizers.list_decayed_weights(model)
        super().prepare(model)
        # FSDP's parameters are flat pieces, so record before wrapping which ones were matrices.
        flat = {
            n for n, _ in self.model.named_parameters() if n.replace(WRAPPED_PREFIX, "") in decay
        }
        self.optimizer = optimizers.build_optimizer(self.config, self.model, flat)

    def wrap(self, model: nn.Module) -> nn.Module:
        from torch.distributed.fsdp import FullyShardedDataParallel
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy

        blocks = {type(block) for block in self.workload.blocks(model)}
        return FullyShardedDataParallel(
            model,
            auto_wrap_policy=ModuleWrapPolicy(blocks) if blocks else None,
            device_id=self.ranks.device,
            use_orig_params=True,  # the optimizer's two groups need the original parameters
        )

    def defer_gradient_sync(self) -> AbstractContextManager:
        return self.forward.no_sync()

    def validate(self, batch: Batch) -> Tensor:
        return self.workload.loss(self.compute_outputs(self.forward, batch), batch)

    def clip(self) -> Tensor:
        return self.forward.clip_grad_norm_(self.config.grad_clip)

    def collect_state(self) -> dict[str, Tensor]:
        """Return whole tensors, on rank 0's CPU only. Collective: call it on every rank."""
        from torch.distributed.checkpoint import state_dict

        options = self._make_full_state_options()
        # Whole states contain only tensors; torch's annotations allow more.
        model: dict[str, Any] = state_dict.get_model_state_dict(self.forward, options=options)
        optimizer: dict[str, Any] = state_dict.get_optimizer_state_dict(
            self.forward, self.optimizer, options=options
        )
        self._handed_out = model, optimizer
        moments = optimizer.get("state", {})
        return {f"model.{name}": tensor for name, tensor in model.items()} | {
            f"optimizer.{name}.{kind}": tensor
            for name, kinds in moments.items()
            for kind, tensor in kinds.items()
        }

    def apply_loaded_state(self, *averages: Mapping[str, Tensor]) -> None:
        """Send the loaded tensors of ``collect_state`` from rank 0; each rank keeps its shard."""
        from torch.distributed.checkpoint import state_dict

        options = state_dict.StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
        model, optimizer = self._handed_out
        state_dict.set_model_state_dict(self.forward, model, options=options)
        state_dict.set_optimizer_state_dict(
            self.forward, self.optimizer, optimizer, options=options
        )
        del self._handed_out

    def list_holders(self, name: str) -> Sequence[int]:
        """Return rank 0, because FSDP provides whole tensors only there."""
        return (0,)

    def gather_full_tensors(
        self, requests: Iterable[tuple[str, Collection[int]]]
    ) -> Iterator[Tensor | None]:
        from torch.distributed.checkpoint import state_dict

        state: dict[str, Any] = state_dict.get_model_state_dict(
            self.forward, options=self._make_full_state_options()
        )
        for name, keepers in requests:
            yield state[name] if self.ranks.rank in keepers else None

    def _make_full_state_options(self) -> "StateDictOptions":
        """Return options for whole tensors; with GPUs only rank 0 receives them, on its CPU.

        On CPUs FSDP's offloading would return views of memory that it frees, so it is not used
        there.
        """
        from torch.distributed.checkpoint.state_dict import StateDictOptions

        offload = self.ranks.device.type != "cpu"
        return StateDictOptions(full_state_dict=True, cpu_offload=offload)
