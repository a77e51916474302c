"""The layouts whose step is counted, and the model's shapes."""

from collections.abc import Mapping
from typing import Any

MODEL = {"context_length": 32, "layers": 4, "heads": 4, "dim": 32}
VOCABULARY = 257  # of the tokenizer of bytes
FSDP: Mapping[str, Any] = {"strategy": "fsdp"}
UNTIED: Mapping[str, Any] = {"tie_embeddings": False, "kv_heads": 2, "vocabulary": 264}

MIXTURE: Mapping[str, Any] = {"experts": 4, "hidden_dim": 32}
FLOAT8 = "FSDP2 × 4, float8 gathered"

CASES: Mapping[str, tuple[int, Mapping[str, Any], int, Mapping[str, Any]]] = {
    "single": (1, {"strategy": "single"}, 2, {}),
    "DDP × 4": (4, {"strategy": "ddp"}, 2, {}),
    "FSDP2 × 4": (4, FSDP, 2, {}),
    "FSDP2 × 4, float32": (4, FSDP | {"precision": "float32"}, 2, {}),
    "FSDP2 × 4, float16": (4, FSDP | {"precision": "float16"}, 2, {}),
    "FSDP2 × 4, untied": (4, FSDP, 1, UNTIED),
    "FSDP2 × 4, weights kept": (4, FSDP | {"reshard_after_forward": "never"}, 1, {}),
    "FSDP2 × 4, always": (4, FSDP | {"reshard_after_forward": "always"}, 1, {}),
    "FSDP2 × 4, resharded to 2": (4, FSDP | {"reshard_after_forward": 2}, 2, {}),
    "FSDP2 × 4, unsharded gradients": (4, FSDP | {"gradient_accumulation": "unsharded"}, 3, {}),
    "FSDP2 × 4, bfloat16 reduced": (4, FSDP | {"reduce_dtype": "bfloat16"}, 2, {}),
    "FSDP2 × 4, offloaded": (4, FSDP | {"cpu_offload": True, "forward_prefetch": 2}, 2, {}),
    FLOAT8: (
        4,
        FSDP | {"float8": "tensorwise", "float8_all_gather": True},
        2,
        {"dim": 64},
    ),
    "hybrid 2 × 2": (4, FSDP | {"shard_degree": 2}, 3, {}),
    "tensor × 2": (2, {"tensor_parallel": 2}, 2, {}),
    "DDP × 2, tensor × 2": (4, {"tensor_parallel": 2, "precision": "float32"}, 2, {}),
    "FSDP2 × 2, tensor × 2": (4, FSDP | {"tensor_parallel": 2}, 2, UNTIED | {"qk_norm": True}),
    "FSDP2 × 2, tensor × 2, no sequence parallelism": (
        4,
        FSDP | {"tensor_parallel": 2, "sequence_parallel": False},
        2,
        {},
    ),
    "experts, FSDP2 × 4": (4, FSDP, 2, MIXTURE),
    "experts, DDP × 4, expert × 2": (4, {"strategy": "ddp", "expert_parallel": 2}, 2, MIXTURE),
    "experts, FSDP2 × 4, expert × 2": (4, FSDP | {"expert_parallel": 2}, 2, MIXTURE),
    "FSDP2 × 2, context × 2": (4, FSDP | {"context_parallel": 2}, 2, UNTIED),
    "FSDP2 × 2, context × 2, tensor × 2": (
        8,
        FSDP | {"context_parallel": 2, "tensor_parallel": 2},
        2,
        {},
    ),
    "hybrid 4 × 8, context × 2, tensor × 2": (
        64,
        FSDP | {"shard_degree": 4, "context_parallel": 2, "tensor_parallel": 2},
        4,
        UNTIED,
    ),
    "hybrid 64 × 8": (512, FSDP | {"shard_degree": 8}, 2, UNTIED),
}
"""Name → (ranks, what differs from the loop's defaults, micro-batches, from ``MODEL``)."""

NOT_FAKED = {"DDP × 4", "experts, DDP × 4, expert × 2", "experts, FSDP2 × 4, expert × 2"}
"""What torch's fake process group cannot run: DDP asks its work for a result, expert ranks ask how
many tokens come."""
