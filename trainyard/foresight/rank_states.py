"""The weights, gradients and optimizer state on one rank, and the weights that it gathers.

Bytes per parameter, Adam, 16 bits with a float32 copy (Rajbhandari et al. 2020, ZeRO, section 3.1;
with float32 gradients Megatron's 18, megatron/training/theoretical_memory_usage.py): weights 2,
gradients 2 or 4, optimizer 12, each divided by the ranks that share it. FSDP keeps the float32
copy alone, and gathers units in 16 bits: 4 + 4 + 8.
"""

from dataclasses import dataclass

from trainyard.foresight.setting import Setting
from trainyard.foresight.transformer_formulas import WIDTH, Shapes, Unit


@dataclass(frozen=True, slots=True)
class Stage:
    """A pipeline rank's part of a model."""

    number: int
    units: tuple[tuple[Unit, float], ...]
    """(unit, count) of each unit."""

    head: Unit | None
    """The model's last unit, only on the last stage."""

    flight: float
    """Micro-batches whose forward pass is done, and whose backward pass is not."""

    shared_parameters: int
    """Weights that the head takes from an embedding of another stage, as a copy."""


def stages_of(setting: Setting, model: Shapes) -> list[Stage]:
    """Return the stages that may be the fullest: first, second (for inner ones), last."""
    ranks = setting.pipeline
    if ranks == 1:
        units = tuple((unit, float(unit.count)) for unit in model.units)
        return [Stage(0, units, model.units[-1], 1.0, 0)]
    first, *inner, last = model.units
    numbers = [0, 1, ranks - 1] if ranks > 2 else [0, 1]
    stages = []
    for number in numbers:
        ends = [(first, 1.0)] * (number == 0) + [(last, 1.0)] * (number == ranks - 1)
        share = _share(setting, sum(unit.count for unit in inner), last=number == ranks - 1)
        blocks = tuple((unit, unit.count * share) for unit in inner)
        head = last if number == ranks - 1 else None
        shared_parameters = _count_embedding(model) if head and model.tied else 0
        stages.append(
            Stage(number, (*blocks, *ends), head, _flight(setting, number), shared_parameters)
        )
    return stages


def _share(setting: Setting, blocks: int, *, last: bool) -> float:
    """Return the share of the blocks on a stage: rounded up, and the last stage gets the rest."""
    chunks = setting.pipeline * setting.interleave
    stage_blocks = -(-blocks // chunks) * setting.interleave
    last_blocks = blocks - stage_blocks * (setting.pipeline - 1)
    if last_blocks < 0:
        return 1 / setting.pipeline
    return (last_blocks if last else stage_blocks) / blocks


def _flight(setting: Setting, number: int) -> float:
    """Return the micro-batches in flight.

    1F1B: p − i micro-batches on stage i. Interleaved, a rank has begun 2(p − i − 1) + (v − 1)p
    + 1 of its parts, of which v make a micro-batch: on the first, 1 + (p − 1)/(pv) times p
    (Narayanan et al. 2021, section 2.2; Korthikanti et al. 2022, section 4.2.3).
    """
    behind, parts = setting.pipeline - number - 1, setting.interleave
    if parts == 1:
        return float(min(behind + 1, setting.accumulation))
    started_parts = 2 * behind + (parts - 1) * setting.pipeline + 1
    return min(started_parts / parts, float(setting.accumulation))


def _count_embedding(model: Shapes) -> int:
    return model.units[-1].widest or model.units[0].parameters


MOMENTS = {"adamw": 2.0, "momentum": 1.0, "sgd": 0.0, "none": 0.0}
"""Numbers that an optimizer keeps per weight, in the weight's own, or the copy's, type."""

EIGHT_BIT = 2 * (1 + 4 / 256)
"""Bytes of Adam's moments in 8 bits, with a float32 scale per 256 (Dettmers et al. 2022)."""

FROZEN = {"nf4": 0.5 + 4 / 64, "int8": 1.0}
"""Bytes per quantized weight; nf4 has a float32 scale per 64 (Dettmers et al. 2023, section 3)."""


@dataclass(frozen=True, slots=True)
class GatheredBytes:
    """Bytes that come and go with a unit: its gathered weights, and its gradient."""

    blocks: float = 0.0
    """Whole weights while a block's backward pass runs: its own, and those fetched ahead."""

    head: float = 0.0
    """Whole weights while the head's backward pass runs."""

    gradient: float = 0.0
    """A block's gradient before it is shared or added."""

    head_gradient: float = 0.0
    save_bytes: float = 0.0
    """The largest unit's float32 weights, put together to be saved."""


@dataclass(frozen=True, slots=True)
class States:
    """Bytes on one rank."""

    parameters: float
    gradients: float
    optimizer: float
    """Moments, and the float32 copy where there is one beside 16-bit weights."""

    gathered_bytes: GatheredBytes


def resident(setting: Setting, stage: Stage) -> States:
    """Return the bytes of the stage's units on one rank."""
    width = WIDTH[setting.precision]
    full, is_sharded = setting.shard == "full", setting.shard != "none"
    ranks = setting.sharded_over
    alone = full and setting.master and setting.offload != "optimizer"  # no 16 bits beside
    has_copy = setting.master and width < 4 and not alone
    weights, trained_weights = _weights(setting, stage, 4.0 if alone else float(width))
    moment_bytes = _moments(setting) * trained_weights
    optimizer = (moment_bytes + trained_weights * 4.0 * has_copy) / (ranks if is_sharded else 1)
    gradients = trained_weights * (4.0 if alone else WIDTH[setting.gradients_in])
    if setting.shard in ("gradients", "full"):
        gradients /= ranks
    if setting.shard == "gradients" and setting.deepspeed:
        gradients += (
            trained_weights * width
        )  # DeepSpeed, estimate_zero2_model_states_mem_needs: 4 + 16/N
    if setting.optimizer_in_backward:
        gradients = 0.0
    parameters = weights / (ranks if full else 1)
    if setting.offload != "none":
        optimizer, gradients = 0.0, 0.0
    if setting.offload == "all":
        parameters = 0.0
    return States(parameters, gradients, optimizer, _gather_bytes(setting, stage))


def _moments(setting: Setting) -> float:
    if setting.optimizer == "adamw_8bit":
        return EIGHT_BIT
    wide = setting.master or setting.precision == "fp32"
    return MOMENTS[setting.optimizer] * (4.0 if wide else 2.0)


def on_rank(setting: Setting, unit: Unit) -> float:
    """Return the parameters of a unit on a tensor-parallel rank."""
    return (unit.parameters - unit.replicated) / setting.tensor + unit.replicated


def _weights(setting: Setting, stage: Stage, weight_bytes: float) -> tuple[float, float]:
    """Return (bytes of the stage's weights on a rank that does not share them, trained weights)."""
    width = float(WIDTH[setting.precision])
    total, trained_weights = (
        stage.shared_parameters / setting.tensor * weight_bytes,
        stage.shared_parameters / setting.tensor,
    )
    for unit, count in stage.units:
        rank_weights = on_rank(setting, unit) * count
        learns = rank_weights * _get_trained_share(unit)
        frozen = width if unit is stage.head else _frozen(setting, unit)
        total += learns * weight_bytes + (rank_weights - learns) * frozen
        trained_weights += learns
    return total, trained_weights


def _get_trained_share(unit: Unit) -> float:
    return unit.trained / max(1, unit.parameters)


def _frozen(setting: Setting, unit: Unit) -> float:
    """Return the bytes of a frozen weight; libraries quantize products, except the head's."""
    width = float(WIDTH[setting.precision])
    return FROZEN.get(setting.quantization, width) if unit.matmul_flops else width


def _gather_bytes(setting: Setting, stage: Stage) -> GatheredBytes:
    width = float(WIDTH[setting.precision])
    both = width + (
        WIDTH[setting.gradients_in] if width < 4 else 0
    )  # as computed, and to be reduced
    unit = max(stage.units, key=lambda pair: pair[0].matmul_flops * pair[1])[0]
    block, learns = on_rank(setting, unit), _get_trained_share(unit)
    frozen = _frozen(setting, unit) if setting.lora_rank else width
    # A quantized matrix is expanded to 16 bits for its product.
    wide = width * unit.widest / setting.tensor if frozen < width else 0.0
    if setting.shard != "full":
        gradient_block = block if setting.shard == "gradients" else unit.widest / setting.tensor
        # Where no gradients stay, a unit's are there until they are copied away or used.
        leaves = setting.optimizer_in_backward or setting.offload != "none"
        return GatheredBytes(
            blocks=wide,
            gradient=gradient_block * learns * both,
            head_gradient=_head(setting, stage) * both if leaves else 0.0,
        )
    save_bytes = 4.0 * max(
        on_rank(setting, stage_unit) * _get_trained_share(stage_unit)
        for stage_unit, _ in stage.units
    )
    if setting.pipeline > 1:  # weights stay together for all micro-batches, gradients add up
        every = sum(on_rank(setting, stage_unit) * count for stage_unit, count in stage.units)
        together = every * (frozen + WIDTH[setting.gradients_in] * learns)
        return GatheredBytes(together, together, block * learns * both, 0.0, save_bytes)
    head = on_rank(setting, stage.head) if stage.head else 0.0
    return GatheredBytes(
        blocks=2 * block * frozen + wide,
        head=head * width + block * frozen,
        gradient=block * learns * both,
        head_gradient=_head(setting, stage) * both,
        save_bytes=save_bytes,
    )


def _head(setting: Setting, stage: Stage) -> float:
    """Return the head's weights with a gradient, on a rank."""
    return on_rank(setting, stage.head) * _get_trained_share(stage.head) if stage.head else 0.0
