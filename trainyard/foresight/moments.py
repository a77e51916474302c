"""What comes and goes on a rank at each moment at which its memory may be fullest."""

from typing import Literal

from trainyard.foresight.setting import Setting
from trainyard.foresight.shapes import megatron
from trainyard.foresight.stages import Stage
from trainyard.foresight.states import States
from trainyard.foresight.units import WIDTH, Kept, Shapes

When = Literal["forward", "backward", "step", "save"]

LOSS = {"float": 14.0, "parallel": 18.0, "fused": 6.0, "chunked": 5.0}
"""Bytes of a logit while its gradient is formed. float: F.cross_entropy on logits.float(): the
product's result in 16 bits, and in float32 the logarithms of the probabilities and two gradients.
parallel: one more, an exponential, over a split vocabulary
(torch/distributed/tensor/parallel/loss.py). fused: float32 in place, and a 16-bit gradient
(megatron/core/tensor_parallel/cross_entropy.py; flash-attn's, which llm-foundry takes). chunked:
result and gradient in 16 bits, and of an eighth of them float32's (torchtune's
CEWithChunkedOutputLoss; litgpt's chunked_cross_entropy is much the same)."""


def of(
    setting: Setting, model: Shapes, stage: Stage, states: States
) -> dict[When, dict[str, float]]:
    """Bytes by category. Categories that stay stand here only where they are not there yet.

    forward is its end, where the loss is taken and its gradient begins; backward the fuller of the
    head's and of the block's that comes first.
    """
    gathered = states.gathered
    tokens = setting.micro_batch * setting.sequence / setting.context
    kept = _kept(setting, stage) * tokens
    logits = model.logits * tokens / setting.tensor if stage.head else 0.0
    loss = {"activations": kept, "logits": logits * _loss(setting), "gathered": gathered.head}
    head = {
        "activations": kept,
        "logits": logits * WIDTH[setting.precision],
        "gathered": gathered.head + gathered.head_gradient,
    }
    again, made = _block(setting, stage)
    block = {
        "activations": kept + again * tokens,
        "logits": logits * (4.0 if megatron(setting) else 0.0),  # its loss leaves them in float32
        "gathered": gathered.blocks,
        "buffers": (made + _between(setting, stage)) * tokens + gathered.gradient,
    }
    back = max((block, head), key=lambda one: sum(one.values()))
    if _fresh(setting):
        loss, back = loss | {"gradients": 0.0}, back | {"gradients": 0.0}
    return {"forward": loss, "backward": back, "step": {}, "save": {"gathered": gathered.saved}}


def _fresh(setting: Setting) -> bool:
    """Whether nobody has gradients before the backward pass, which then frees more than it makes;
    DDP's buckets and Megatron's buffers stay."""
    alone = setting.data_parallel == 1 or setting.shard == "full"
    return alone and setting.accumulation == 1 and not megatron(setting)


def _loss(setting: Setting) -> float:
    """Which of the ways to the loss the training's library takes: those that fine-tune have it in
    chunks, those of GPTs and Megatron fused."""
    narrow = not setting.master and setting.precision != "fp32"
    if narrow or setting.lora_rank or setting.optimizer == "adamw_8bit":
        return LOSS["chunked"]
    if setting.positions == "learned" or megatron(setting):
        return LOSS["fused"]
    return LOSS["float" if setting.tensor == 1 else "parallel"]


def _kept(setting: Setting, stage: Stage) -> float:
    """Bytes for a token of a micro-batch that the stage's units keep, of all that are begun."""
    return sum(
        _on(setting, unit.kept[setting.recompute])
        * count
        * (1.0 if unit is stage.head else stage.flight)
        for unit, count in stage.units
    )


def _on(setting: Setting, kept: Kept) -> float:
    return kept.on(setting.tensor, sequence_parallel=setting.sequence_parallel)


def _between(setting: Setting, stage: Stage) -> float:
    """Bytes for a token that torch's pipeline has of each micro-batch that is begun: what the stage
    gave, and room for its gradient (torch/distributed/pipelining/stage.py)."""
    if setting.pipeline == 1 or megatron(setting):
        return 0.0
    given = stage.units[0][0].output_bytes
    return 2 * stage.flight * given / (setting.tensor if setting.sequence_parallel else 1)


def _block(setting: Setting, stage: Stage) -> tuple[float, float]:
    """Of the unit with the most work, bytes for a token: what is kept beside once it is computed
    again, and the gradients that its backward pass makes.

    Those are as much as half of what is split (the other half is what one operator hands to the
    next), and the stream's; ranks that share the sequence also put that together.
    """
    unit = max(stage.units, key=lambda pair: pair[0].matmul_flops * pair[1])[0]
    again = _on(setting, unit.kept["none"]) - _on(setting, unit.kept[setting.recompute])
    shared = setting.sequence_parallel and setting.tensor > 1
    return again, unit.kept["none"].split / 2 / setting.tensor + unit.output_bytes * (1 + shared)
