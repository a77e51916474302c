"""Check that a training of ours fits into its devices' memory, in the words of its recipe."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from pipelines.advice.training_setting import ZERO, LoopTraining
from training.config import TrainConfig
from trainyard.foresight.memory import Memory, Remedy, remedies

WHEN = {
    "forward": "in the forward pass",
    "backward": "in the backward pass",
    "step": "in the optimizer's step",
    "save": "while it saves",
}
SAME = {
    "micro_batch": "micro_batch",
    "recompute": "activation_checkpointing",
    "tensor": "tensor_parallel",
    "shard_degree": "shard_degree",
}
"""Field of a setting → field of train.loop, with the same values."""


def describe_memory_need(training: LoopTraining, memory: Memory) -> str:
    """Return how much of its devices' memory it needs, and in which part of a step
    it needs most.
    """
    device, peak = training.setting.device, memory.peak
    return (
        f"needs {peak.p50:.1f} GiB (8 of 10 times {peak.p10:.1f} – {peak.p90:.1f}) of the "
        f"{memory.usable_gib:.1f} of its {device.name}, most {WHEN[memory.when]}"
    )


def remedy(training: LoopTraining) -> str:
    """Return the one change of the recipe that makes the training fit."""
    for candidate in remedies(training.setting, training.shapes):
        for field, value in _in_recipe(candidate, training.loop).items():
            if _is_possible(training, {field: value}):
                peak = candidate.memory.peak
                return f"set train.loop.{field} to {_yaml(value)}: {peak.p50:.1f} GiB"
    return "no single change of train.loop is enough; take more machines, or some with more memory"


def _in_recipe(candidate: Remedy, loop: TrainConfig) -> Mapping[str, Any]:
    """Return the field of train.loop with its value; empty where the recipe has no such change."""
    field, value = candidate.field, candidate.changes[candidate.field]
    if field in SAME:
        return {SAME[field]: value}
    if field == "offload":
        return {"cpu_offload": True} if loop.strategy == "fsdp" else {}
    if loop.strategy == "deepspeed":
        return {"zero_stage": next(stage for stage, shard in ZERO.items() if shard == value)}
    if value != "full":
        return {}
    return {"reshard_after_forward": "always"} if loop.strategy == "fsdp" else {"strategy": "fsdp"}


def _is_possible(training: LoopTraining, change: Mapping[str, Any]) -> bool:
    """Return whether the loop accepts the change, and still has enough samples for each rank."""
    if training.setting.lora_rank and "tensor_parallel" in change:
        return False
    try:
        changed_loop = TrainConfig.model_validate({**training.loop.model_dump(), **change})
        changed_loop.micro_batches(training.setting.gpus)
    except (ValidationError, ValueError):
        return False
    return True


def _yaml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
