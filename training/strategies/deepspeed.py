"""ZeRO: optimizer state (stage 1), gradients (2) and weights (3) cut into equal pieces.

Rajbhandari et al. 2020, ZeRO. DeepSpeed cuts without regard to layers or shapes. A checkpoint has
the same names and shapes with every strategy, so it is assembled on the CPU of rank 0: 12 bytes per
parameter. If that is too much, use ``fsdp``, which shards the checkpoint as well.

As with the other strategies, the optimizer is ours (AdamW on float32 weights), and bfloat16 is
autocast.
"""

import json
import logging
import os
import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from training.config import TrainConfig
from training.microbatches import MicroBatches
from training.strategies.ranks import Ranks
from training.strategies.single import Batch, Strategy
from training.workloads import Workload
from trainyard.common.errors import TrainingError

log = logging.getLogger(__name__)

MOMENTS = ("exp_avg", "exp_avg_sq")


def build_settings(config: TrainConfig, world: int) -> dict[str, Any]:
    """Return the configuration for DeepSpeed (deepspeed.ai/docs/config-json)."""
    options: dict[str, Any] = {
        "train_batch_size": config.global_batch,
        "train_micro_batch_size_per_gpu": config.micro_batch,
        "gradient_accumulation_steps": config.count_micro_batches(world),
        "gradient_clipping": config.grad_clip,
        "zero_optimization": {"stage": config.zero_stage},
    }
    if config.precision == "bfloat16":
        # No module's gradients are sent in bfloat16, because they are float32 with every other
        # strategy.
        options["torch_autocast"] = {
            "enabled": True,
            "dtype": "bfloat16",
            "lower_precision_safe_modules": [],
        }
    return options


class DeepSpeed(Strategy):
    """Strategy that uses DeepSpeed's engine; every rank is data-parallel.

    The engine reads the gradient's norm when it updates, and cannot be told to skip a step, so the
    loop reads each step's numbers before the update.
    """

    reads = True

    def __init__(self, config: TrainConfig, workload: Workload, ranks: Ranks) -> None:
        super().__init__(config, workload, ranks)
        self.data_rank, self.data_world = ranks.rank, ranks.world
        # Set before the import, which would otherwise search for every known accelerator and log
        # that.
        os.environ.setdefault("DS_ACCELERATOR", ranks.device.type)
        try:
            import deepspeed
        except ModuleNotFoundError as error:
            if error.name != "deepspeed":
                raise
            raise TrainingError(
                "strategy deepspeed: the package deepspeed is not installed; add "
                "deepspeed==0.19.8 to the image, or leave its installation to the train step"
            ) from None
        if not dist.is_initialized():
            raise TrainingError("strategy deepspeed: start the job with torchrun or mpirun")
        # Skips the search for C++ operations that could be compiled, because none is needed.
        deepspeed.ops.__compatible_ops__ = {}
        # DeepSpeed's own calls of torch cause this warning on every rank.
        warnings.filterwarnings("ignore", "`torch.distributed.*is deprecated", FutureWarning)
        self._deepspeed = deepspeed

    def prepare(self, model: nn.Module) -> None:
        frozen = [name for name, p in model.named_parameters() if not p.requires_grad]
        if frozen and self.config.zero_stage == 3:
            raise TrainingError(
                f"strategy deepspeed, zero_stage 3: {frozen[0]} is frozen, and a checkpoint of "
                "such a model cannot be assembled; set zero_stage to 2, or strategy to fsdp"
            )
        if scalar_names := [
            name for name, parameter in model.named_parameters() if not parameter.dim()
        ]:
            raise TrainingError(
                f"strategy deepspeed: the weight {scalar_names[0]} has no dimensions, and "
                "DeepSpeed cannot "
                "send it; give it shape (1,) in Workload.model, or set strategy to fsdp"
            )
        super().prepare(model)
        options = build_settings(self.config, self.ranks.world)
        if self.ranks.rank == 0:
            log.info("deepspeed: %s", json.dumps(options))
        self.engine, *_ = self._deepspeed.initialize(
            model=self.model, optimizer=self.optimizer, config=options
        )
        self.forward = self.engine
        self._zero = self.engine.optimizer
        # Create the optimizer's state now, because a checkpoint may be loaded into it before the
        # first step.
        for piece in self._list_weight_pieces():
            state = self._zero.optimizer.state[piece]
            state["step"] = torch.zeros((), device=piece.device)
            for kind in MOMENTS:
                state[kind] = torch.zeros_like(piece)
        if self.config.zero_stage < 3:
            self._zero._lazy_init_hp_params_optimizer_state()

    def backward(self, batches: Sequence[Batch], units: Tensor) -> Tensor:
        total = torch.zeros((), dtype=torch.float64, device=self.ranks.device)
        scale = self.data_world / units
        assert isinstance(self.micro, MicroBatches)  # this strategy has no pipeline stages
        for number, batch in enumerate(batches, 1):
            self.micro.begin(number - 1)
            self.engine.set_gradient_accumulation_boundary(number == len(batches))
            loss = self.compute_loss(self.forward, batch)
            # DeepSpeed averages over the ranks: multiplied by their number, the average is the sum
            # again.
            self.engine.backward(loss * scale.to(loss.dtype), scale_wrt_gas=False)
            total += loss.detach()
        return total

    def clip(self) -> Tensor:
        """Return the gradient's global norm; ``update`` then scales the gradient down by it."""
        if self.config.zero_stage < 3:
            return self._zero.scaled_global_norm()
        from deepspeed.runtime.utils import combine_grad_norm_groups

        return combine_grad_norm_groups(self._zero._get_norm_groups())

    def update(self, rate: float, finite: Tensor) -> None:
        """Take the engine's step; ``finite`` is always true, because the loop has checked it."""
        for group in self._zero.param_groups:
            group["lr"] = rate
        self.engine.step()

    def collect_state(self) -> dict[str, Tensor]:
        """Return whole tensors, on rank 0's CPU only. Collective: call it on every rank."""
        from deepspeed.utils import safe_get_full_optimizer_state

        state = {}
        for name, tensor in self.model.state_dict(keep_vars=True).items():
            # A collective, although only rank 0 keeps the result.
            full_tensor = _gather_weight(tensor)
            if self.ranks.rank == 0:
                state[f"model.{self.find_saved_name(name)}"] = full_tensor.detach().cpu()
        step = self._zero.optimizer.state[self._list_weight_pieces()[0]]["step"]
        for name, parameter in self._list_trainable_parameters():
            state[f"optimizer.{name}.step"] = step.cpu().clone()
            for kind in MOMENTS:
                moment = safe_get_full_optimizer_state(parameter, kind)
                if self.ranks.rank == 0:
                    state[f"optimizer.{name}.{kind}"] = moment.cpu()
        # Loading writes into these tensors, and ``apply_loaded_state`` sends their values to the
        # other ranks.
        self._handed_out = state if self.ranks.rank == 0 else {}
        return self._handed_out

    @torch.no_grad()
    def apply_loaded_state(self, *averages: Mapping[str, Tensor]) -> None:
        """Send the loaded tensors of ``collect_state`` from rank 0; each rank keeps its pieces."""
        for name, tensor in self.model.state_dict(keep_vars=True).items():
            if not tensor.requires_grad:
                key = f"model.{self.find_saved_name(name)}"
                tensor.copy_(self._broadcast_tensor(key, tensor.shape, tensor.dtype))
        for name, parameter in self._list_trainable_parameters():
            shape = getattr(parameter, "ds_shape", parameter.shape)
            self._write_piece(parameter, self._broadcast_tensor(f"model.{name}", shape), None)
            for kind in MOMENTS:
                self._write_piece(
                    parameter, self._broadcast_tensor(f"optimizer.{name}.{kind}", shape), kind
                )
        step = self._broadcast_tensor(f"optimizer.{name}.step", ())
        for piece in self._list_weight_pieces():
            self._zero.optimizer.state[piece]["step"].copy_(step)
        # The model computes with copies of the float32 weights that were set above, so update the
        # copies.
        if self.config.zero_stage < 3:
            self._zero.update_lp_params()
        else:
            for number in range(len(self._list_weight_pieces())):
                self._zero._reassign_or_swap_out_partitioned_parameters(number)
            # Small weights are whole on each rank; assemble them from the pieces again.
            kept_whole = self._zero.persistent_parameters
            if kept_whole:
                kept_whole[0].all_gather(kept_whole)
        del self._handed_out

    def gather(self, name: str, tensor: Tensor | None, keepers: Collection[int]) -> Tensor | None:
        if self.config.zero_stage < 3:  # weights are whole on each rank, and may be averaged ones
            return super().gather(name, tensor, keepers)
        assert tensor is not None  # each rank has a part of every tensor
        full_tensor = _gather_weight(tensor)
        return full_tensor.detach().cpu() if self.ranks.rank in keepers else None

    def _list_trainable_parameters(self) -> list[tuple[str, nn.Parameter]]:
        """Return name and parameter of the weights that DeepSpeed manages: those that are not
        frozen.
        """
        return [(name, p) for name, p in self.model.named_parameters() if p.requires_grad]

    def _broadcast_tensor(
        self, name: str, shape: Sequence[int], dtype: torch.dtype = torch.float32
    ) -> Tensor:
        """Return rank 0's tensor with this name, on every rank's device. Collective: call it on
        every rank.
        """
        device = self.ranks.device
        full_tensor = self._handed_out[name].to(device) if self.ranks.rank == 0 else None
        if full_tensor is None:
            full_tensor = torch.empty(shape, device=device, dtype=dtype)
        dist.broadcast(full_tensor, 0)
        return full_tensor

    def _list_weight_pieces(self) -> list[Tensor]:
        """Return this rank's float32 weights, as the flat tensors that the optimizer uses."""
        if self.config.zero_stage < 3:
            return self._zero.single_partition_of_fp32_groups
        return self._zero.fp32_partitioned_groups_flat

    def _write_piece(self, parameter: Any, full_tensor: Tensor, kind: str | None) -> None:
        """Write this rank's piece of a parameter, or of its moment named ``kind``.

        DeepSpeed adds attributes to the parameter that ``nn.Parameter`` does not have, hence
        ``Any``.
        """
        if self.config.zero_stage < 3:
            parameter.set_full_hp_param(full_tensor, kind)
            return
        # DeepSpeed's own setter of whole tensors fails if the last piece is padded.
        size = parameter.ds_tensor.numel()
        buffer = full_tensor.new_zeros(size * self.ranks.world)
        buffer[: full_tensor.numel()] = full_tensor.flatten()
        self._zero.set_local_hp_param(buffer[size * self.ranks.rank :][:size], parameter, kind)


def _gather_weight(tensor: Tensor) -> Tensor:
    """Return the whole weight in float32 from its pieces on all ranks. Collective: call it on
    every rank.
    """
    from deepspeed.utils import safe_get_full_fp32_param

    return safe_get_full_fp32_param(tensor) if tensor.requires_grad else tensor
