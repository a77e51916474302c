"""Predict the memory of a training's fullest GPU, its categories, and whether it fits.

Torch's peak is searched at the moments at which it can come: the end of the forward pass, where
the loss is taken; the backward pass of the block that comes first in it; the optimizer's step; a
save. The figure is the reserved maximum (``torch.cuda.max_memory_reserved``), which programs
print; the allocated one is less by the category ``reserve``.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from trainyard.foresight import model_shapes
from trainyard.foresight.interval import Spread
from trainyard.foresight.model_shapes import megatron
from trainyard.foresight.rank_states import Stage, States, resident, stages_of
from trainyard.foresight.setting import Setting
from trainyard.foresight.transformer_formulas import WIDTH, ActivationBytes, Shapes

GIB = 2**30
When = Literal["forward", "backward", "step", "save"]
STAYS = ("parameters", "gradients", "optimizer")
CATEGORIES = (
    *STAYS,
    "activations",
    "gathered",
    "logits",
    "buffers",
    "reserve",
)
"""Uses of memory. gathered: whole weights and gradients of units that ranks share. buffers:
what a backward pass needs beside what was kept for it. reserve: what torch's caching allocator
holds beyond what is allocated."""


@dataclass(frozen=True, slots=True)
class Constants:
    """Constants that are fitted to published peaks."""

    reserve: float
    """Reserved memory beyond the allocated, as a share of what comes and goes."""

    low: float
    """p10 over the median, of what comes and goes."""

    high: float
    """p90 over the median, of what comes and goes."""

    worst: float
    """Largest measured value over the median: a training has to leave room for it."""

    states: float
    """Half of the interval from p10 to p90 of what stays, as a share."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of the fullest GPU, in GiB."""

    categories: Mapping[str, Spread]
    """Parts of the peak, by ``CATEGORIES``."""

    peak: Spread
    """Reserved maximum of torch's caching allocator."""

    when: When
    """Moment of the peak; forward is its end, where the loss is taken and its gradient begins."""

    stage: int
    """Pipeline rank that the peak is on."""

    fits: Literal["yes", "no", "unsure"]
    """Fit on the device. yes: even with the worst error of a published peak; no: not at p10."""

    usable_gib: float
    """Memory that the device has for torch's allocator, in GiB."""


CONTEXT_GIB = 0.6
"""CUDA's context and NCCL's buffers, outside torch's allocator, in GiB: chosen, not measured."""


_TABLE = json.loads(Path(__file__).with_name("constants.json").read_text(encoding="utf-8"))
CONSTANTS = Constants(**_TABLE["memory"])


def foresee(
    setting: Setting, shapes: Shapes | None = None, constants: Constants = CONSTANTS
) -> Memory:
    """Predict the memory of the fullest GPU of ``setting``.

    Args:
        shapes: the model's, where it is not the GPT or Llama that the setting's fields describe.
        constants: constants to use instead of those of ``constants.json``.
    """
    model = shapes or model_shapes.from_setting(setting)
    moments: list[tuple[float, When, Stage, States, dict[str, float]]] = []
    for stage in stages_of(setting, model):
        states = resident(setting, stage)
        for when, moving in moving_at(setting, model, stage, states).items():
            categories = _list_categories(setting, states, moving, constants)
            moments.append((sum(categories.values()), when, stage, states, categories))
    total, when, stage, states, categories = max(moments, key=lambda moment: moment[0])
    stays, c = sum(categories[name] for name in STAYS), constants
    moves = total - stays
    peak = Spread(
        (stays * (1 - c.states) + moves * c.low) / GIB,
        total / GIB,
        (stays * (1 + c.states) + moves * c.high) / GIB,
    )
    return Memory(
        categories={name: _spread(name, categories.get(name, 0.0), c) for name in CATEGORIES},
        peak=peak,
        when=when,
        stage=stage.number,
        fits=_verdict(setting, model, peak.p10, (stays * (1 + c.states) + moves * c.worst) / GIB),
        usable_gib=_usable(setting),
    )


def _spread(name: str, size: float, c: Constants) -> Spread:
    low, high = (1 - c.states, 1 + c.states) if name in STAYS else (c.low, c.high)
    return Spread.around(size / GIB, low, high)


def _list_categories(
    setting: Setting, states: States, moving: Mapping[str, float], c: Constants
) -> dict[str, float]:
    """Return a moment's categories in bytes, with those that stay and the allocator's reserve."""
    categories = {"parameters": states.parameters, "optimizer": states.optimizer, **moving}
    categories.setdefault("gradients", states.gradients)
    comes = sum(size for name, size in moving.items() if name != "gradients")
    # A shared gradient's pieces leave gaps that are too small for activations.
    gradient_gap = states.gradients - categories["gradients"] if setting.shard == "full" else 0.0
    return categories | {"reserve": c.reserve * comes + gradient_gap}


def _verdict(
    setting: Setting, model: Shapes, least: float, most: float
) -> Literal["yes", "no", "unsure"]:
    usable = _usable(setting)
    if least > usable:
        return "no"
    # PEFT on FSDP saves the whole model's weights unless it is set to save shards.
    full_weights = (
        2.0 * model.parameters / GIB if setting.lora_rank and setting.shard == "full" else 0.0
    )
    return "yes" if max(most, full_weights) <= usable else "unsure"


def _usable(setting: Setting) -> float:
    return setting.device.memory_gib - CONTEXT_GIB


SHARDS = ("none", "optimizer", "gradients", "full")
RECOMPUTES = ("none", "selective", "full")


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change of a setting that makes it fit."""

    changes: Mapping[str, Any]
    """Fields of the setting → their new values; a global batch is kept by a second field."""

    memory: Memory
    """Memory after the changes."""

    @property
    def field(self) -> str:
        """Name of the field that is changed; the others only follow."""
        return next(iter(self.changes))


def remedies(setting: Setting, shapes: Shapes | None = None) -> Iterator[Remedy]:
    """Iterate over single changes with which the training fits for sure, the cheapest first.

    Args:
        shapes: the model's, where it is not the one that the setting's fields describe.
    """
    for changes in (*_smaller(setting), *_raise_recompute(setting), *_raise_sharding(setting),
                    *_split(setting), *_add_offload(setting)):  # fmt: skip
        variant = Setting.model_validate(setting.model_dump() | changes)
        memory = foresee(variant, shapes)
        if memory.fits == "yes":
            yield Remedy(changes, memory)


def _smaller(setting: Setting) -> Iterator[dict[str, Any]]:
    """Iterate over changes to fewer samples at a time, more often."""
    samples = setting.micro_batch * setting.accumulation
    for micro_batch in range(setting.micro_batch - 1, 0, -1):
        if samples % micro_batch == 0:
            yield {"micro_batch": micro_batch, "accumulation": samples // micro_batch}


def _raise_recompute(setting: Setting) -> Iterator[dict[str, Any]]:
    for policy in RECOMPUTES[RECOMPUTES.index(setting.recompute) + 1 :]:
        yield {"recompute": policy}


def _raise_sharding(setting: Setting) -> Iterator[dict[str, Any]]:
    """Iterate over changes from copying to sharing, then to sharing by all data ranks."""
    if setting.sharded_over > 1:
        for shard in SHARDS[SHARDS.index(setting.shard) + 1 :]:
            yield {"shard": shard}
    if setting.shard != "none" and 0 < setting.shard_degree < setting.data_parallel:
        yield {"shard_degree": 0}


def _split(setting: Setting) -> Iterator[dict[str, Any]]:
    """Iterate over twice, four times … the tensor-parallel ranks, within a node."""
    heads = setting.heads or max(1, setting.hidden // 128)
    head_count, times = setting.kv_heads or heads, 2
    while setting.tensor * times <= setting.node_size:
        tensor, accumulation = setting.tensor * times, setting.accumulation * times
        if head_count % tensor == 0 and setting.data_parallel % times == 0:
            degree = setting.shard_degree
            is_divisible = degree and setting.data_parallel // times % degree == 0
            yield {
                "tensor": tensor,
                "accumulation": accumulation,
                "sequence_parallel": True,
                "data": 0,
                "shard_degree": degree if is_divisible else 0,
            }
        times *= 2


def _add_offload(setting: Setting) -> Iterator[dict[str, Any]]:
    if setting.offload == "none" and setting.shard == "full":
        yield {"offload": "all"}


LOSS = {"float": 14.0, "parallel": 18.0, "fused": 6.0, "chunked": 5.0}
"""Bytes per logit while its gradient is formed. float: F.cross_entropy on logits.float(): the
product's result in 16 bits, and in float32 the logarithms of the probabilities and two gradients.
parallel: one more, an exponential, over a split vocabulary
(torch/distributed/tensor/parallel/loss.py). fused: float32 in place, and a 16-bit gradient
(megatron/core/tensor_parallel/cross_entropy.py; flash-attn's, which llm-foundry uses). chunked:
result and gradient in 16 bits, and float32's for an eighth of them (torchtune's
CEWithChunkedOutputLoss; litgpt's chunked_cross_entropy is much the same)."""


def moving_at(
    setting: Setting, model: Shapes, stage: Stage, states: States
) -> dict[When, dict[str, float]]:
    """Return bytes by category, per moment. Categories that stay are here only while not yet there.

    forward is its end, where the loss is taken and its gradient begins; backward the fuller of the
    head's and of the block's that comes first.
    """
    gathered_bytes = states.gathered_bytes
    tokens = setting.micro_batch * setting.sequence / setting.context
    activations = _activation_bytes(setting, stage) * tokens
    logits = model.logits * tokens / setting.tensor if stage.head else 0.0
    loss = {
        "activations": activations,
        "logits": logits * _loss(setting),
        "gathered": gathered_bytes.head,
    }
    head = {
        "activations": activations,
        "logits": logits * WIDTH[setting.precision],
        "gathered": gathered_bytes.head + gathered_bytes.head_gradient,
    }
    recompute_bytes, buffer_bytes = _block(setting, stage)
    block = {
        "activations": activations + recompute_bytes * tokens,
        "logits": logits * (4.0 if megatron(setting) else 0.0),  # its loss leaves them in float32
        "gathered": gathered_bytes.blocks,
        "buffers": (buffer_bytes + _between(setting, stage)) * tokens + gathered_bytes.gradient,
    }
    back = max((block, head), key=lambda categories: sum(categories.values()))
    if _fresh(setting):
        loss, back = loss | {"gradients": 0.0}, back | {"gradients": 0.0}
    return {
        "forward": loss,
        "backward": back,
        "step": {},
        "save": {"gathered": gathered_bytes.save_bytes},
    }


def _fresh(setting: Setting) -> bool:
    """Return whether no gradients exist before the backward pass, which then frees more than it
    creates; DDP's buckets and Megatron's buffers stay.
    """
    alone = setting.data_parallel == 1 or setting.shard == "full"
    return alone and setting.accumulation == 1 and not megatron(setting)


def _loss(setting: Setting) -> float:
    """Return the bytes per logit of the training library's loss: libraries for fine-tuning compute
    it in chunks, those of GPTs and Megatron fused.
    """
    narrow = not setting.master and setting.precision != "fp32"
    if narrow or setting.lora_rank or setting.optimizer == "adamw_8bit":
        return LOSS["chunked"]
    if setting.positions == "learned" or megatron(setting):
        return LOSS["fused"]
    return LOSS["float" if setting.tensor == 1 else "parallel"]


def _activation_bytes(setting: Setting, stage: Stage) -> float:
    """Return the bytes per token of a micro-batch that the stage's units keep, over all begun
    ones.
    """
    return sum(
        _on(setting, unit.kept[setting.recompute])
        * count
        * (1.0 if unit is stage.head else stage.flight)
        for unit, count in stage.units
    )


def _on(setting: Setting, activation: ActivationBytes) -> float:
    return activation.on(setting.tensor, sequence_parallel=setting.sequence_parallel)


def _between(setting: Setting, stage: Stage) -> float:
    """Return the bytes per token that torch's pipeline keeps of each begun micro-batch: the stage's
    output, and room for its gradient (torch/distributed/pipelining/stage.py).
    """
    if setting.pipeline == 1 or megatron(setting):
        return 0.0
    output_bytes = stage.units[0][0].output_bytes
    return 2 * stage.flight * output_bytes / (setting.tensor if setting.sequence_parallel else 1)


def _block(setting: Setting, stage: Stage) -> tuple[float, float]:
    """Return bytes per token of the unit with the most work: what is also kept once it is
    recomputed, and the gradients that its backward pass creates.

    The gradients are half of what is split (the other half is what one operator hands to the
    next), and the stream's; ranks that share the sequence also gather the stream's.
    """
    unit = max(stage.units, key=lambda pair: pair[0].matmul_flops * pair[1])[0]
    recompute_bytes = _on(setting, unit.kept["none"]) - _on(setting, unit.kept[setting.recompute])
    is_split = setting.sequence_parallel and setting.tensor > 1
    return recompute_bytes, unit.kept["none"].split / 2 / setting.tensor + unit.output_bytes * (
        1 + is_split
    )
