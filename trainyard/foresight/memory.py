"""Predict the memory of the fullest GPU of a training run, its categories, and whether it fits.

The peak of torch's memory is searched at the points at which it can occur: the end of the forward
pass, where the loss is computed; the backward pass of the block that it processes first; the
optimizer's step; a save. The figure is the reserved maximum
(``torch.cuda.max_memory_reserved``), which programs print; the allocated maximum is smaller by the
category ``reserve``.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from trainyard.foresight import model_shapes
from trainyard.foresight.interval import Spread
from trainyard.foresight.model_shapes import is_megatron
from trainyard.foresight.setting import Setting
from trainyard.foresight.transformer_formulas import WIDTH, ActivationBytes, Shapes, Unit

# The weights, gradients and optimizer state on one rank, and the weights that it gathers.
#
# Bytes per parameter, for Adam in 16 bits with a float32 copy (Rajbhandari et al. 2020, ZeRO,
# section 3.1; with float32 gradients, Megatron's 18,
# megatron/training/theoretical_memory_usage.py): weights 2, gradients 2 or 4, optimizer 12, each
# divided by the number of ranks that share it. FSDP keeps only the float32 copy, and gathers units
# in 16 bits: 4 + 4 + 8.


@dataclass(frozen=True, slots=True)
class Stage:
    """A pipeline rank's part of a model."""

    number: int
    units: tuple[tuple[Unit, float], ...]
    """(unit, number of times that it occurs on the stage) of each unit, a part of the model."""

    head: Unit | None
    """The model's last unit if this is the last stage; else None."""

    flight: float
    """Number of micro-batches whose forward pass is done, but whose backward pass is not."""

    shared_parameters: int
    """Number of weights that the head shares with an embedding on another stage, and so keeps as a
    copy.
    """


def list_stages(setting: Setting, model: Shapes) -> list[Stage]:
    """Return the stages that may be the fullest: the first, the second (an inner one), the last."""
    ranks = setting.pipeline
    if ranks == 1:
        units = tuple((unit, float(unit.count)) for unit in model.units)
        return [Stage(0, units, model.units[-1], 1.0, 0)]
    first, *inner, last = model.units
    numbers = [0, 1, ranks - 1] if ranks > 2 else [0, 1]
    stages = []
    for number in numbers:
        ends = [(first, 1.0)] * (number == 0) + [(last, 1.0)] * (number == ranks - 1)
        share = _compute_block_share(
            setting, sum(unit.count for unit in inner), last=number == ranks - 1
        )
        blocks = tuple((unit, unit.count * share) for unit in inner)
        head = last if number == ranks - 1 else None
        embedding = model.units[-1].widest or model.units[0].parameters
        shared_parameters = embedding if head and model.tied else 0
        stages.append(
            Stage(
                number, (*blocks, *ends), head, _count_in_flight(setting, number), shared_parameters
            )
        )
    return stages


def _compute_block_share(setting: Setting, blocks: int, *, last: bool) -> float:
    """Return the share of the blocks on a stage: it is rounded up, and the last gets the rest."""
    chunks = setting.pipeline * setting.interleave
    stage_blocks = -(-blocks // chunks) * setting.interleave
    last_blocks = blocks - stage_blocks * (setting.pipeline - 1)
    if last_blocks < 0:
        return 1 / setting.pipeline
    return (last_blocks if last else stage_blocks) / blocks


def _count_in_flight(setting: Setting, number: int) -> float:
    """Return the number of micro-batches in flight on stage ``number``.

    1F1B: p − i micro-batches on stage i. Interleaved: a rank has started 2(p − i − 1) + (v − 1)p
    + 1 of its parts, of which v make a micro-batch; on the first stage that is 1 + (p − 1)/(pv)
    times p (Narayanan et al. 2021, section 2.2; Korthikanti et al. 2022, section 4.2.3).
    """
    behind, parts = setting.pipeline - number - 1, setting.interleave
    if parts == 1:
        return float(min(behind + 1, setting.accumulation))
    started_parts = 2 * behind + (parts - 1) * setting.pipeline + 1
    return min(started_parts / parts, float(setting.accumulation))


MOMENTS = {"adamw": 2.0, "momentum": 1.0, "sgd": 0.0, "none": 0.0}
"""Numbers that an optimizer keeps per weight, in the type of the weight or of its copy."""

EIGHT_BIT = 2 * (1 + 4 / 256)
"""Bytes per weight of Adam's two moments in 8 bits, with a float32 scale per 256 values (Dettmers
et al. 2022)."""

FROZEN = {"nf4": 0.5 + 4 / 64, "int8": 1.0}
"""Bytes per quantized weight; nf4 has a float32 scale per 64 weights (Dettmers et al. 2023, section
3)."""


@dataclass(frozen=True, slots=True)
class GatheredBytes:
    """Bytes that exist only while a unit is processed: its gathered weights and its gradient."""

    blocks: float = 0.0
    """Full weights during a block's backward pass: its own, and those that are prefetched."""

    head: float = 0.0
    """Full weights during the head's backward pass."""

    gradient: float = 0.0
    """Gradient of a block before it is sharded or added."""

    head_gradient: float = 0.0
    save_bytes: float = 0.0
    """Largest unit's full float32 weights, which are gathered to be saved."""


@dataclass(frozen=True, slots=True)
class States:
    """Bytes on one rank: those that stay, and those that are gathered for a while."""

    parameters: float
    gradients: float
    optimizer: float
    """Moments, and the float32 copy of 16-bit weights if there is one."""

    gathered_bytes: GatheredBytes


def compute_model_state_bytes(setting: Setting, stage: Stage) -> States:
    """Return the bytes of a stage's parameters, gradients and optimizer state on one rank."""
    width = WIDTH[setting.precision]
    full, is_sharded = setting.shard == "full", setting.shard != "none"
    ranks = setting.sharded_over
    # FSDP keeps only the float32 weights, without a 16-bit copy of them.
    alone = full and setting.master and setting.offload != "optimizer"
    has_copy = setting.master and width < 4 and not alone
    weights, trained_weights = _count_weights(setting, stage, 4.0 if alone else float(width))
    moment_bytes = _compute_moment_bytes(setting) * trained_weights
    optimizer = (moment_bytes + trained_weights * 4.0 * has_copy) / (ranks if is_sharded else 1)
    gradients = trained_weights * (4.0 if alone else WIDTH[setting.effective_gradient_dtype])
    if setting.shard in ("gradients", "full"):
        gradients /= ranks
    # DeepSpeed, estimate_zero2_model_states_mem_needs: 4 + 16/N.
    if setting.shard == "gradients" and setting.deepspeed:
        gradients += trained_weights * width
    if setting.optimizer_in_backward:
        gradients = 0.0
    parameters = weights / (ranks if full else 1)
    if setting.offload != "none":
        optimizer, gradients = 0.0, 0.0
    if setting.offload == "all":
        parameters = 0.0
    return States(parameters, gradients, optimizer, _compute_gathered_bytes(setting, stage))


def _compute_moment_bytes(setting: Setting) -> float:
    """Return the bytes per trained weight of the optimizer's moments."""
    if setting.optimizer == "adamw_8bit":
        return EIGHT_BIT
    wide = setting.master or setting.precision == "fp32"
    return MOMENTS[setting.optimizer] * (4.0 if wide else 2.0)


def count_rank_parameters(setting: Setting, unit: Unit) -> float:
    """Return the number of a unit's parameters on a tensor-parallel rank."""
    return (unit.parameters - unit.replicated) / setting.tensor + unit.replicated


def _count_weights(setting: Setting, stage: Stage, weight_bytes: float) -> tuple[float, float]:
    """Return (bytes of the stage's weights, number of trained weights) on an unsharded rank."""
    width = float(WIDTH[setting.precision])
    total, trained_weights = (
        stage.shared_parameters / setting.tensor * weight_bytes,
        stage.shared_parameters / setting.tensor,
    )
    for unit, count in stage.units:
        rank_weights = count_rank_parameters(setting, unit) * count
        learns = rank_weights * _get_trained_share(unit)
        frozen = width if unit is stage.head else _compute_frozen_bytes(setting, unit)
        total += learns * weight_bytes + (rank_weights - learns) * frozen
        trained_weights += learns
    return total, trained_weights


def _get_trained_share(unit: Unit) -> float:
    """Return the share of a unit's parameters that are trained."""
    return unit.trained / max(1, unit.parameters)


def _compute_frozen_bytes(setting: Setting, unit: Unit) -> float:
    """Return the bytes per frozen parameter; only weights of matrix products are quantized."""
    width = float(WIDTH[setting.precision])
    return FROZEN.get(setting.quantization, width) if unit.matmul_flops else width


def _compute_gathered_bytes(setting: Setting, stage: Stage) -> GatheredBytes:
    """Return the bytes on one rank that exist only while a unit of the stage is processed."""
    width = float(WIDTH[setting.precision])
    # Both copies of a gradient: as it is computed, and in the type in which it is reduced.
    both = width + (WIDTH[setting.effective_gradient_dtype] if width < 4 else 0)
    unit = max(stage.units, key=lambda pair: pair[0].matmul_flops * pair[1])[0]
    block, learns = count_rank_parameters(setting, unit), _get_trained_share(unit)
    frozen = _compute_frozen_bytes(setting, unit) if setting.lora_rank else width
    # A quantized matrix is expanded to 16 bits for its product.
    wide = width * unit.widest / setting.tensor if frozen < width else 0.0
    if setting.shard != "full":
        gradient_block = block if setting.shard == "gradients" else unit.widest / setting.tensor
        # If gradients are not kept, those of a unit exist until they are copied away or used.
        leaves = setting.optimizer_in_backward or setting.offload != "none"
        return GatheredBytes(
            blocks=wide,
            gradient=gradient_block * learns * both,
            head_gradient=_count_trained_head_weights(setting, stage) * both if leaves else 0.0,
        )
    save_bytes = 4.0 * max(
        count_rank_parameters(setting, stage_unit) * _get_trained_share(stage_unit)
        for stage_unit, _ in stage.units
    )
    # In a pipeline, the weights stay gathered and gradients accumulate over all micro-batches.
    if setting.pipeline > 1:
        every = sum(
            count_rank_parameters(setting, stage_unit) * count for stage_unit, count in stage.units
        )
        together = every * (frozen + WIDTH[setting.effective_gradient_dtype] * learns)
        return GatheredBytes(together, together, block * learns * both, 0.0, save_bytes)
    head = count_rank_parameters(setting, stage.head) if stage.head else 0.0
    return GatheredBytes(
        blocks=2 * block * frozen + wide,
        head=head * width + block * frozen,
        gradient=block * learns * both,
        head_gradient=_count_trained_head_weights(setting, stage) * both,
        save_bytes=save_bytes,
    )


def _count_trained_head_weights(setting: Setting, stage: Stage) -> float:
    """Return the number of the head's trained weights on a rank; 0 if the stage has no head."""
    return (
        count_rank_parameters(setting, stage.head) * _get_trained_share(stage.head)
        if stage.head
        else 0.0
    )


GIB = 2**30
When = Literal["forward", "backward", "step", "save"]
STAYS = ("parameters", "gradients", "optimizer")
CATEGORIES = (*STAYS, "activations", "gathered", "logits", "buffers", "reserve")
"""Uses of memory. gathered: full weights and gradients of units that ranks share. buffers: what a
backward pass needs in addition to what was kept for it. reserve: what torch's caching allocator
reserves beyond what is allocated."""


@dataclass(frozen=True, slots=True)
class Constants:
    """Constants that are fitted to published peaks."""

    reserve: float
    """Reserved memory beyond the allocated, as a share of the memory that comes and goes."""

    low: float
    """p10 divided by the median, for memory that comes and goes."""

    high: float
    """p90 divided by the median, for memory that comes and goes."""

    worst: float
    """Largest measured value divided by the median: a training run has to leave room for it."""

    states: float
    """Half of the interval from p10 to p90 of memory that stays, as a share of the median."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Predicted memory of the fullest GPU, in GiB."""

    categories: Mapping[str, Spread]
    """Parts of the peak: mapping of each name in ``CATEGORIES`` to its size."""

    peak: Spread
    """Reserved maximum of torch's caching allocator."""

    when: When
    """Point of the step at which the peak occurs; forward is the end of the forward pass, where the
    loss is computed.
    """

    stage: int
    """Pipeline rank on which the peak occurs."""

    fits: Literal["yes", "no", "unsure"]
    """Whether it fits on the device. yes: even with the largest error of a published peak. no: not
    even at p10. unsure: anything else."""

    usable_gib: float
    """Memory that torch's allocator can use on the device, in GiB."""


CONTEXT_GIB = 0.6
"""GiB outside torch's allocator, for CUDA's context and NCCL's buffers: chosen, not measured."""


_TABLE = json.loads(Path(__file__).with_name("constants.json").read_text(encoding="utf-8"))
CONSTANTS = Constants(**_TABLE["memory"])


def predict_memory(
    setting: Setting, shapes: Shapes | None = None, constants: Constants = CONSTANTS
) -> Memory:
    """Predict the memory of the fullest GPU of ``setting``.

    Args:
        setting: the training run.
        shapes: shapes of the model, if it is not the GPT or Llama that the fields of ``setting``
            describe.
        constants: constants to use instead of those in ``constants.json``.
    """
    model = shapes or model_shapes.derive_shapes(setting)
    timeline: list[tuple[float, When, Stage, States, dict[str, float]]] = []
    for stage in list_stages(setting, model):
        states = compute_model_state_bytes(setting, stage)
        for when, moving in compute_moving_bytes(setting, model, stage, states).items():
            categories = {"parameters": states.parameters, "optimizer": states.optimizer, **moving}
            categories.setdefault("gradients", states.gradients)
            comes = sum(size for name, size in moving.items() if name != "gradients")
            # The pieces of a sharded gradient leave gaps that are too small for activations.
            gradient_gap = (
                states.gradients - categories["gradients"] if setting.shard == "full" else 0.0
            )
            categories = categories | {"reserve": constants.reserve * comes + gradient_gap}
            timeline.append((sum(categories.values()), when, stage, states, categories))
    total, when, stage, states, categories = max(timeline, key=lambda point: point[0])
    stays, c = sum(categories[name] for name in STAYS), constants
    moves = total - stays
    peak = Spread(
        (stays * (1 - c.states) + moves * c.low) / GIB,
        total / GIB,
        (stays * (1 + c.states) + moves * c.high) / GIB,
    )
    return Memory(
        categories={name: _make_spread(name, categories.get(name, 0.0), c) for name in CATEGORIES},
        peak=peak,
        when=when,
        stage=stage.number,
        fits=_judge_fit(setting, model, peak.p10, (stays * (1 + c.states) + moves * c.worst) / GIB),
        usable_gib=_compute_usable_gib(setting),
    )


def _make_spread(name: str, size: float, c: Constants) -> Spread:
    """Return the interval, in GiB, of a category with ``size`` bytes."""
    low, high = (1 - c.states, 1 + c.states) if name in STAYS else (c.low, c.high)
    return Spread.from_median(size / GIB, low, high)


def _judge_fit(
    setting: Setting, model: Shapes, min_gib: float, max_gib: float
) -> Literal["yes", "no", "unsure"]:
    """Return whether a peak between ``min_gib`` and ``max_gib`` GiB fits on the device."""
    usable = _compute_usable_gib(setting)
    if min_gib > usable:
        return "no"
    # PEFT on FSDP saves the weights of the whole model unless it is configured to save shards.
    full_weights = (
        2.0 * model.parameters / GIB if setting.lora_rank and setting.shard == "full" else 0.0
    )
    return "yes" if max(max_gib, full_weights) <= usable else "unsure"


def _compute_usable_gib(setting: Setting) -> float:
    """Return the memory in GiB that torch's allocator can use on the device."""
    return setting.device.memory_gib - CONTEXT_GIB


LOSS = {"float": 14.0, "parallel": 18.0, "fused": 6.0, "chunked": 5.0}
"""Bytes per logit while its gradient is computed, for the implementations of the loss.

float: F.cross_entropy on logits.float(): the product's result in 16 bits, and in float32 the
logarithms of the probabilities and two gradients. parallel: one more float32 value, an exponential,
over a split vocabulary (torch/distributed/tensor/parallel/loss.py). fused: float32 in place, and a
16-bit gradient (megatron/core/tensor_parallel/cross_entropy.py; flash-attn's, which llm-foundry
uses). chunked: result and gradient in 16 bits, and the float32 values for an eighth of them
(torchtune's CEWithChunkedOutputLoss; litgpt's chunked_cross_entropy is much the same)."""


def compute_moving_bytes(
    setting: Setting, model: Shapes, stage: Stage, states: States
) -> dict[When, dict[str, float]]:
    """Return the bytes that come and go, as {point of the step: {category: bytes}}.

    A category that otherwise stays, such as gradients, is contained only at points at which it does
    not exist yet. ``forward`` is the end of the forward pass, where the loss is computed and its
    gradient begins. ``backward`` is the larger of the head's backward pass and that of the block
    which is processed first.
    """
    gathered_bytes = states.gathered_bytes
    tokens = setting.micro_batch * setting.sequence / setting.context
    activations = _compute_activation_bytes(setting, stage) * tokens
    logits = model.logits * tokens / setting.tensor if stage.head else 0.0
    loss = {
        "activations": activations,
        "logits": logits * _compute_loss_bytes(setting),
        "gathered": gathered_bytes.head,
    }
    head = {
        "activations": activations,
        "logits": logits * WIDTH[setting.precision],
        "gathered": gathered_bytes.head + gathered_bytes.head_gradient,
    }
    recompute_bytes, buffer_bytes = _compute_backward_bytes(setting, stage)
    block = {
        "activations": activations + recompute_bytes * tokens,
        # Megatron's loss keeps the logits in float32.
        "logits": logits * (4.0 if is_megatron(setting) else 0.0),
        "gathered": gathered_bytes.blocks,
        "buffers": (buffer_bytes + _compute_boundary_bytes(setting, stage)) * tokens
        + gathered_bytes.gradient,
    }
    back = max((block, head), key=lambda categories: sum(categories.values()))
    if _starts_without_gradients(setting):
        loss, back = loss | {"gradients": 0.0}, back | {"gradients": 0.0}
    return {
        "forward": loss,
        "backward": back,
        "step": {},
        "save": {"gathered": gathered_bytes.save_bytes},
    }


def _starts_without_gradients(setting: Setting) -> bool:
    """Return whether the backward pass begins without gradient buffers.

    It then frees more memory than it takes. DDP's buckets and Megatron's buffers are allocated for
    the whole run, so with those it does not.
    """
    alone = setting.data_parallel == 1 or setting.shard == "full"
    return alone and setting.accumulation == 1 and not is_megatron(setting)


def _compute_loss_bytes(setting: Setting) -> float:
    """Return the bytes per logit of the loss, by what the training library is likely to use.

    Libraries for fine-tuning compute the loss in chunks; those for GPTs, and Megatron, compute it
    in a fused kernel.
    """
    narrow = not setting.master and setting.precision != "fp32"
    if narrow or setting.lora_rank or setting.optimizer == "adamw_8bit":
        return LOSS["chunked"]
    if setting.positions == "learned" or is_megatron(setting):
        return LOSS["fused"]
    return LOSS["float" if setting.tensor == 1 else "parallel"]


def _compute_activation_bytes(setting: Setting, stage: Stage) -> float:
    """Return the bytes per token of a micro-batch that the stage's units keep for the backward
    pass.

    The result includes all micro-batches in flight.
    """
    return sum(
        _count_activation_bytes(setting, unit.kept[setting.recompute])
        * count
        * (1.0 if unit is stage.head else stage.flight)
        for unit, count in stage.units
    )


def _count_activation_bytes(setting: Setting, activation: ActivationBytes) -> float:
    """Return the bytes of an activation on one tensor-parallel rank."""
    return activation.compute_rank_bytes(
        setting.tensor, sequence_parallel=setting.sequence_parallel
    )


def _compute_boundary_bytes(setting: Setting, stage: Stage) -> float:
    """Return the bytes per token that torch's pipeline keeps for all micro-batches in flight.

    For each it keeps the output of the stage, and space for the gradient of that output
    (torch/distributed/pipelining/stage.py).
    """
    if setting.pipeline == 1 or is_megatron(setting):
        return 0.0
    output_bytes = stage.units[0][0].output_bytes
    return 2 * stage.flight * output_bytes / (setting.tensor if setting.sequence_parallel else 1)


def _compute_backward_bytes(setting: Setting, stage: Stage) -> tuple[float, float]:
    """Return the bytes per token of the unit with the most work, in its backward pass.

    They are (activations that exist only after recomputation, gradients that the pass creates). The
    gradients are half of the split activations (the other half is what one operator passes to the
    next), and the gradient of the residual stream; ranks that share the sequence also gather the
    latter.
    """
    unit = max(stage.units, key=lambda pair: pair[0].matmul_flops * pair[1])[0]
    recompute_bytes = _count_activation_bytes(setting, unit.kept["none"]) - _count_activation_bytes(
        setting, unit.kept[setting.recompute]
    )
    is_split = setting.sequence_parallel and setting.tensor > 1
    return recompute_bytes, unit.kept["none"].split / 2 / setting.tensor + unit.output_bytes * (
        1 + is_split
    )
