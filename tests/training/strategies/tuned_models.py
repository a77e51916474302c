"""Models with frozen, unused, tied and batch-normalised weights, under each strategy."""

from typing import Any

STEPS = 4
SETTINGS: dict[str, Any] = {
    **{"workload": "toys.tuned", "max_steps": STEPS, "micro_batch": 2, "global_batch": 16},
    **{"precision": "float64", "ema_decay": 0.9},
    **dict.fromkeys(("checkpoint_interval", "validation_interval"), STEPS // 2),
}
MODELS: dict[str, dict[str, Any]] = {
    "plain": {},
    "frozen embedding": {"frozen": "embedding"},
    "frozen body": {"frozen": "body"},
    "unused weights": {"unused": True},
    "tied": {"tied": True},
    "tied, frozen body": {"tied": True, "frozen": "body"},
    "BatchNorm": {"norm": "batch"},
    "frozen BatchNorm": {"norm": "frozen batch", "frozen": "body"},
    "dropout": {"dropout": 0.3},
    "torch's dropout": {"dropout": 0.3, "kind": "torch"},
    "all of it": {"tied": True, "norm": "batch", "dropout": 0.3, "unused": True},
}
STRATEGIES: dict[str, tuple[int, dict[str, Any]]] = {
    "single": (1, {"strategy": "single"}),
    "single, recomputed": (1, {"strategy": "single", "activation_checkpointing": "full"}),
    "DDP × 2": (2, {"strategy": "ddp"}),
    "DDP × 2, compiled": (
        2,
        {"strategy": "ddp", "compile": True, "activation_checkpointing": "full"},
    ),
    "DDP × 3": (3, {"strategy": "ddp", "global_batch": 12}),
    "DDP × 4": (4, {"strategy": "ddp"}),
    "FSDP2 × 2": (2, {"strategy": "fsdp"}),
    "hybrid 2 × 2": (4, {"strategy": "fsdp", "shard_degree": 2}),
    "tensor × 2": (2, {"tensor_parallel": 2}),
    "tensor × 2, compiled": (2, {"tensor_parallel": 2, "compile": True}),
    "pipeline × 2": (2, {"pipeline_parallel": 2}),
    "pipeline × 2, recomputed": (2, {"pipeline_parallel": 2, "activation_checkpointing": "full"}),
    "FSDP2 × 2, pipeline × 2": (4, {"strategy": "fsdp", "pipeline_parallel": 2}),
    "FSDP2 × 2, tensor × 2": (4, {"strategy": "fsdp", "tensor_parallel": 2}),
}
"""Name → (world size, what differs from SETTINGS)."""
