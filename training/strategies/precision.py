"""``precision: auto``: the type of the matrix products that suits the machines.

It is chosen once the ranks have met, since all of them must multiply in the same type, and it is
part of the training's identity: a training that goes on elsewhere keeps what it was begun in.
"""

import logging
import platform

import torch
from pydantic import ValidationError

from training.config import TrainConfig
from training.strategies.ranks import Ranks

log = logging.getLogger(__name__)

AUTOMATIC = ("bfloat16", "float16", "float32")
"""Types that ``auto`` may become."""
AMPERE = (8, 0)
"""The first compute capability whose tensor cores multiply in bfloat16."""


def choose_precision(
    config: TrainConfig, ranks: Ranks, checkpoint: tuple[int, str] = (0, "")
) -> TrainConfig:
    """Return the settings with ``precision: auto`` replaced, alike on all ranks; rank 0 logs what
    it became, and a precision that is slow here.

    Args:
        checkpoint: step and precision of this training's newest checkpoint on this machine;
            (0, "") if there is none.
    """
    native = _native_precisions(ranks.device)
    if config.precision == "auto":
        every = ranks.gather((checkpoint, native))
        # Machines may have different checkpoints of this training: the newest one decides.
        _, precision = max(newest for newest, _ in every)
        shared_types = [dtype for dtype in native if all(dtype in types for _, types in every)]
        config = _replace_precision(
            config, [precision, *shared_types] if precision else shared_types
        )
        if ranks.rank == 0:
            since = ", as its checkpoint was trained in" if precision else ""
            log.info("precision auto is %s%s", config.precision, since)
    if ranks.rank == 0 and config.half and config.precision not in native:
        log.warning(
            "precision %s is slow on this %s, which only emulates it: auto would take %s",
            config.precision,
            "GPU" if ranks.device.type == "cuda" else "processor",
            native[0],
        )
    return config


def _replace_precision(config: TrainConfig, types: list[str]) -> TrainConfig:
    """Return the settings with the first of the types that goes with the others."""
    for precision in types:
        try:
            return TrainConfig.model_validate({**config.model_dump(), "precision": precision})
        except ValidationError:  # float16, which some strategies cannot scale
            continue
    raise AssertionError(f"no setting refuses float32: {types}")


def _native_precisions(device: torch.device) -> list[str]:
    """Return the types in which the device multiplies fast, fastest first; float32 is always
    among them.
    """
    if device.type == "cuda":
        return ["bfloat16" if torch.cuda.get_device_capability(device) >= AMPERE else "float16",
                "float32"]  # fmt: skip
    return [*(["bfloat16"] if _processor_multiplies_bfloat16() else []), "float32"]


def _processor_multiplies_bfloat16() -> bool:
    """Return whether the processor has units for bfloat16.

    oneDNN alone does not tell: it also takes AVX-512 without them, where a layer of a transformer
    takes 2.7 times as long as in float32 (3.6 times less with them; AVX2 16 times more).
    """
    if not torch.backends.mkldnn.is_available():
        return False
    if not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return False
    if platform.machine() != "x86_64":
        return True
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
