"""``precision: auto``: choose the type of the matrix products that suits the machines.

It is chosen once the ranks have met, because all of them must multiply in the same type. It is part
of the training's identity: a run that continues on other machines keeps the precision that it
began with.
"""

import logging
import platform
from collections.abc import Iterable, Sequence

import torch
from pydantic import ValidationError
from torch import Tensor, nn

from training.config import TrainConfig
from training.strategies.ranks import Ranks
from training.weights.initial.initial_values import to_local_tensor

log = logging.getLogger(__name__)

AUTOMATIC = ("bfloat16", "float16", "float32")
"""Types that ``auto`` may become."""
AMPERE = (8, 0)
"""The first compute capability whose tensor cores multiply in bfloat16 (Ampere)."""


def choose_precision(
    config: TrainConfig, ranks: Ranks, checkpoint: tuple[int, str] = (0, "")
) -> TrainConfig:
    """Return the settings with ``precision: auto`` replaced, the same on all ranks.

    Rank 0 logs the chosen precision, and warns of one that is slow on this machine. Collective:
    call it on every rank.

    Args:
        checkpoint: step and precision of this training's newest checkpoint on this machine; (0, "")
            if there is none.
    """
    native = _list_native_precisions(ranks.device)
    if config.precision == "auto":
        every = ranks.gather((checkpoint, native))
        # Machines may have different checkpoints of this training; the newest one decides.
        _, precision = max(newest for newest, _ in every)
        shared_types = [dtype for dtype in native if all(dtype in types for _, types in every)]
        config = _replace_precision(
            config, [precision, *shared_types] if precision else shared_types
        )
        if ranks.rank == 0:
            since = ", the precision of its checkpoint" if precision else ""
            log.info("precision auto is %s%s", config.precision, since)
    if ranks.rank == 0 and config.half_precision and config.precision not in native:
        log.warning(
            "precision %s is slow on this %s, which only emulates it: auto would choose %s",
            config.precision,
            "GPU" if ranks.device.type == "cuda" else "processor",
            native[0],
        )
    return config


def _replace_precision(config: TrainConfig, types: list[str]) -> TrainConfig:
    """Return the settings with the first of ``types`` that is valid together with the other
    settings.
    """
    for precision in types:
        try:
            return TrainConfig.model_validate({**config.model_dump(), "precision": precision})
        except ValidationError:  # float16, whose loss some strategies cannot scale
            continue
    raise AssertionError(f"no setting refuses float32: {types}")


def _list_native_precisions(device: torch.device) -> list[str]:
    """Return the types in which the device multiplies fast, fastest first; float32 is always
    included.
    """
    if device.type == "cuda":
        return ["bfloat16" if torch.cuda.get_device_capability(device) >= AMPERE else "float16",
                "float32"]  # fmt: skip
    return [*(["bfloat16"] if _has_bfloat16_units() else []), "float32"]


def _has_bfloat16_units() -> bool:
    """Return whether the processor has units for bfloat16.

    oneDNN's own check is not sufficient: it also accepts AVX-512 without them, with which a layer
    of a transformer takes 2.7 times as long as in float32 (with them 3.6 times less; with AVX2 16
    times more).
    """
    if not torch.backends.mkldnn.is_available():
        return False
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return False
    if platform.machine() != "x86_64":
        return True
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


# Dynamic loss scaling, for gradients that float16 would round to zero (Micikevicius et al. 2018).
#
# A loss is multiplied before its backward pass and the gradient divided after it, both by a power
# of two, which causes no rounding. The factor follows torch.amp.GradScaler: 2¹⁶ at first; if the
# gradient is not finite, it is halved and the step is skipped; after 2,000 successful steps in a
# row it is doubled. GradScaler itself is not used because it makes the host read values (``step``,
# ``state_dict``) and considers only what one rank holds. Here everything stays on the device, and a
# step is judged by the gradient's norm over all ranks, so that all of them skip the same steps.


def scale_tensors(tensors: Sequence[Tensor], factor: Tensor) -> None:
    """Multiply the tensors in place by ``factor`` (0-dim), converted to each one's type and device.

    With ``cpu_offload`` the tensors are on the host.
    """
    groups: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
    for tensor in tensors:
        groups.setdefault((tensor.device, tensor.dtype), []).append(to_local_tensor(tensor))
    for (device, dtype), group in groups.items():
        torch._foreach_mul_(group, factor.to(device, dtype))


INITIAL, GROWTH, BACKOFF, INTERVAL = 2.0**16, 2.0, 0.5, 2000
"""Defaults of torch.amp.GradScaler: first scale, growth and backoff factors, steps between
growths.
"""

LEAST = 1.0
"""Smallest scale. A gradient that is not finite at this scale is not finite without scaling
either, and the training ends. It is the same minimum as in Megatron-LM (``--min-loss-scale``)
and DeepSpeed (``min_loss_scale``).
"""

REPORT_SIZE = 3
"""Number of values that ``LossScale.report`` returns."""


class LossScale:
    """The loss scale of the next step, the same on every rank.

    Attributes:
        scale: float32, 0-dim, on the device.
    """

    def __init__(self, device: torch.device) -> None:
        self.scale = torch.full((), INITIAL, dtype=torch.float32, device=device)
        self._good_steps = torch.zeros((), dtype=torch.int32, device=device)
        self._skipped_steps = torch.zeros((), dtype=torch.int64, device=device)

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Tensors that a checkpoint contains; loading writes into them."""
        return {
            "scale": self.scale,
            "good_steps": self._good_steps,
            "skipped_steps": self._skipped_steps,
        }

    def unscale_gradients(self, parameters: Iterable[nn.Parameter], rank_count: int) -> None:
        """Divide the gradients by the scale, in place.

        Args:
            rank_count: number of ranks that the gradients were averaged over.
        """
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        scale_tensors(gradients, rank_count / self.scale)

    def has_overflow(self, norm: Tensor) -> Tensor:
        """Return whether a gradient with this norm may have overflowed because of the scale;
        boolean, 0-dim.
        """
        return ~norm.isfinite().to(self.scale.device) & (self.scale > LEAST)

    def report(self, overflow: Tensor) -> Tensor:
        """Return (3,) float64: the step's scale, whether the step is skipped, and the number of
        skipped steps.
        """
        row = self.scale, overflow, self._skipped_steps + overflow
        return torch.stack([value.double() for value in row])

    def update(self, overflow: Tensor) -> None:
        """Update the scale after a step.

        Args:
            overflow: boolean, 0-dim: whether the step was skipped.
        """
        self._skipped_steps += overflow
        torch._amp_update_scale_(
            self.scale, self._good_steps, overflow.float(), GROWTH, BACKOFF, INTERVAL
        )
        self.scale.clamp_(min=LEAST)
