"""Layouts that are compared, the training they are compared on, and how far curves are apart."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from training.data.shard_writer import write_dataset
from training.strategy_table import SCHEDULES
from training.workloads import load_packing

MODEL = {"context_length": 32, "layers": 4, "heads": 4, "dim": 32}
SETTINGS: dict[str, Any] = {
    **{"workload": "language_model", "workload_config": json.dumps(MODEL)},
    **{"max_steps": 100, "global_batch": 16, "micro_batch": 4, "log_interval": 1},
    **{"learning_rate": 0.001, "warmup_steps": 10},
    **{"validation_interval": 50, "checkpoint_interval": 50},
}
GOLDEN = Path(__file__).with_name("golden.json")
TOLERANCE = {"float64": 1e-13, "float32": 1e-6, "bfloat16": 5e-3, "float16": 6e-4, "float8": 5e-3}
"""Largest relative difference of a loss from that of one process, by precision: float16 rounds to
three more bits than bfloat16, so its limit is an eighth."""

FSDP, TENSOR, CONTEXT, PIPELINE = (
    *({"strategy": "fsdp"}, {"tensor_parallel": 2}),
    *({"context_parallel": 2}, {"pipeline_parallel": 2}),
)
INTERLEAVED = PIPELINE | {"pipeline_schedule": "interleaved_1f1b", "micro_batch": 2}
COMPILED = {"compile": True, "activation_checkpointing": "full"}
CASES: dict[str, tuple[int, dict[str, Any]]] = {
    "single": (1, {"strategy": "single"}),
    **{
        f"accumulation {count}": (1, {"strategy": "single", "micro_batch": 16 // count})
        for count in (1, 2, 8)
    },
    "DDP × 2": (2, {"strategy": "ddp"}),
    "DDP × 2, mpirun": (2, {"strategy": "ddp"}),
    "DDP × 4": (4, {"strategy": "ddp"}),
    "FSDP2 × 2": (2, FSDP),
    "FSDP2 × 4": (4, FSDP),
    "FSDP2 × 2, weights kept": (2, FSDP | {"reshard_after_forward": "never"}),
    "FSDP2 × 4, resharded to 2": (4, FSDP | {"reshard_after_forward": 2}),
    "FSDP2 × 2, prefetch": (2, FSDP | {"forward_prefetch": 2, "backward_prefetch": 2}),
    "FSDP2 × 2, offloaded": (2, FSDP | {"cpu_offload": True}),
    "FSDP2 × 2, float32 gathered": (2, FSDP | {"param_dtype": "float32"}),
    "FSDP2 × 2, unsharded gradients": (2, FSDP | {"gradient_accumulation": "unsharded"}),
    "hybrid 2 × 2": (4, FSDP | {"shard_degree": 2}),
    "tensor × 2": (2, TENSOR),
    "tensor × 2, whole stream": (2, TENSOR | {"sequence_parallel": False}),
    "tensor × 4": (4, {"tensor_parallel": 4}),
    "tensor × 2, selective": (2, TENSOR | {"activation_checkpointing": "selective"}),
    "tensor × 2, compiled": (2, TENSOR | {"compile": True}),
    "pipeline × 2": (2, PIPELINE),
    "pipeline × 4": (4, {"pipeline_parallel": 4}),
    **{
        f"pipeline × 2, {name}": (2, INTERLEAVED | {"pipeline_schedule": name})
        for name in SCHEDULES
    },
    "DDP × 2, pipeline × 2, interleaved_1f1b": (4, INTERLEAVED),
    "FSDP2 × 2, pipeline × 2, interleaved_1f1b": (4, INTERLEAVED | FSDP),
    "tensor × 2, pipeline × 2, interleaved_1f1b": (4, INTERLEAVED | TENSOR),
    "DDP × 2, tensor × 2": (4, TENSOR),
    "FSDP2 × 2, tensor × 2": (4, FSDP | TENSOR),
    "FSDP2 × 2, tensor × 2, compiled": (4, FSDP | TENSOR | COMPILED),
    "FSDP2 × 2, pipeline × 2": (4, FSDP | PIPELINE),
    "context × 2": (2, CONTEXT),
    "context × 4": (4, FSDP | {"context_parallel": 4}),
    "FSDP2 × 2, context × 2": (4, FSDP | CONTEXT),
    "context × 2, tensor × 2": (4, CONTEXT | TENSOR),
    "context × 2, pipeline × 2": (4, CONTEXT | PIPELINE),
    "FSDP2 × 2, context × 2, tensor × 2": (8, FSDP | CONTEXT | TENSOR),
    "tensor × 2, pipeline × 2": (4, TENSOR | PIPELINE),
    "FSDP2 × 2, tensor × 2, pipeline × 2": (8, FSDP | TENSOR | PIPELINE),
    **{
        f"ZeRO {stage} × 2": (2, {"strategy": "deepspeed", "zero_stage": stage})
        for stage in (1, 2, 3)
    },
}
"""Name → (world size, what differs from SETTINGS)."""


def write_data(folder: Path, *, packed: bool = False) -> None:
    """A train and a validation split of ragged lists of tokens, the same on every machine.

    A sample holds 2 to 32 tokens, the rest is padding: micro-batches hold unequal counts. With
    ``packed`` it holds several documents: each token is an end token with a chance of 1 in 6.
    """
    packing = load_packing("language_model", MODEL)
    random = np.random.default_rng(0)
    words = [random.integers(97, 123, size) for size in random.integers(2, 8, 60)]
    for split, samples in (("train", 400), ("validation", 37)):
        rows = np.full((samples, MODEL["context_length"] + 1), packing.tokenizer.end, np.uint16)
        for row, length in zip(rows, random.integers(2, 33, samples), strict=True):
            text = np.concatenate([words[n] for n in random.zipf(1.5, 20) % len(words)])
            row[: min(length, len(text))] = text[:length]
        if packed:
            rows[random.random(rows.shape) < 1 / 6] = packing.tokenizer.end
        told = {"split": split, "workload": packing.info, "shard_bytes": 2000}
        write_dataset(folder / split, {"tokens": rows}, packing.fields, **told)


def container(data: Path, root: Path) -> Path:
    """A training container's folders over a copy of the data."""
    shutil.copytree(data, root / "input/data")
    return root


def distance(curve: dict[int, float], reference: dict[int, float]) -> float:
    """The largest relative difference over the steps, which have to be the same ones."""
    if curve.keys() != reference.keys():
        raise ValueError(f"steps {sorted(curve)} are not those of the reference")
    return max(abs(curve[step] / reference[step] - 1) for step in curve)
