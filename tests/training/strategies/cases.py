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
    "workload": "language_model",
    "workload_config": json.dumps(MODEL),
    "max_steps": 100,
    "global_batch": 16,
    "micro_batch": 4,
    "learning_rate": 0.001,
    "warmup_steps": 10,
    "validation_interval": 50,
    "checkpoint_interval": 50,
    "log_interval": 1,
}

GOLDEN = Path(__file__).with_name("golden.json")
TOLERANCE = {
    **{"float64": 1e-13, "float32": 1e-6, "bfloat16": 5e-3, "float16": 6e-4},
    "float8": 5e-3,
}
"""Largest relative difference of a loss from that of one process, by precision: float16 rounds to
three more bits than bfloat16, so its limit is an eighth."""

CASES: dict[str, tuple[int, dict[str, Any]]] = {
    "single": (1, {"strategy": "single"}),
    "accumulation 1": (1, {"strategy": "single", "micro_batch": 16}),
    "accumulation 2": (1, {"strategy": "single", "micro_batch": 8}),
    "accumulation 8": (1, {"strategy": "single", "micro_batch": 2}),
    "DDP × 2": (2, {"strategy": "ddp"}),
    "DDP × 2, mpirun": (2, {"strategy": "ddp"}),
    "DDP × 4": (4, {"strategy": "ddp"}),
    "FSDP2 × 2": (2, {"strategy": "fsdp"}),
    "FSDP2 × 4": (4, {"strategy": "fsdp"}),
    "FSDP2 × 2, weights kept": (2, {"strategy": "fsdp", "reshard_after_forward": "never"}),
    "FSDP2 × 4, resharded to 2": (4, {"strategy": "fsdp", "reshard_after_forward": 2}),
    "FSDP2 × 2, prefetch": (2, {"strategy": "fsdp", "forward_prefetch": 2, "backward_prefetch": 2}),
    "FSDP2 × 2, offloaded": (2, {"strategy": "fsdp", "cpu_offload": True}),
    "FSDP2 × 2, float32 gathered": (2, {"strategy": "fsdp", "param_dtype": "float32"}),
    "FSDP2 × 2, unsharded gradients": (
        2,
        {"strategy": "fsdp", "gradient_accumulation": "unsharded"},
    ),
    "hybrid 2 × 2": (4, {"strategy": "fsdp", "shard_degree": 2}),
    "tensor × 2": (2, {"tensor_parallel": 2}),
    "tensor × 2, whole stream": (2, {"tensor_parallel": 2, "sequence_parallel": False}),
    "tensor × 4": (4, {"tensor_parallel": 4}),
    "tensor × 2, selective": (2, {"tensor_parallel": 2, "activation_checkpointing": "selective"}),
    "tensor × 2, compiled": (2, {"tensor_parallel": 2, "compile": True}),
    "pipeline × 2": (2, {"pipeline_parallel": 2}),
    "pipeline × 4": (4, {"pipeline_parallel": 4}),
    **{
        f"pipeline × 2, {name}": (
            2,
            {"pipeline_parallel": 2, "pipeline_schedule": name, "micro_batch": 2},
        )
        for name in SCHEDULES
    },
    **{
        f"{data}, pipeline × 2, {name}": (
            4,
            {"pipeline_parallel": 2, "pipeline_schedule": name, "micro_batch": 2} | differs,
        )
        for name in ("interleaved_1f1b",)
        for data, differs in (
            ("DDP × 2", {}),
            ("FSDP2 × 2", {"strategy": "fsdp"}),
            ("tensor × 2", {"tensor_parallel": 2}),
        )
    },
    "DDP × 2, tensor × 2": (4, {"tensor_parallel": 2}),
    "FSDP2 × 2, tensor × 2": (4, {"strategy": "fsdp", "tensor_parallel": 2}),
    "FSDP2 × 2, tensor × 2, compiled": (
        4,
        {
            "strategy": "fsdp",
            "tensor_parallel": 2,
            "compile": True,
            "activation_checkpointing": "full",
        },
    ),
    "FSDP2 × 2, pipeline × 2": (4, {"strategy": "fsdp", "pipeline_parallel": 2}),
    "context × 2": (2, {"context_parallel": 2}),
    "context × 4": (4, {"strategy": "fsdp", "context_parallel": 4}),
    "FSDP2 × 2, context × 2": (4, {"strategy": "fsdp", "context_parallel": 2}),
    "context × 2, tensor × 2": (4, {"context_parallel": 2, "tensor_parallel": 2}),
    "context × 2, pipeline × 2": (4, {"context_parallel": 2, "pipeline_parallel": 2}),
    "FSDP2 × 2, context × 2, tensor × 2": (
        8,
        {"strategy": "fsdp", "context_parallel": 2, "tensor_parallel": 2},
    ),
    "tensor × 2, pipeline × 2": (4, {"tensor_parallel": 2, "pipeline_parallel": 2}),
    "FSDP2 × 2, tensor × 2, pipeline × 2": (
        8,
        {"strategy": "fsdp", "tensor_parallel": 2, "pipeline_parallel": 2},
    ),
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
        write_dataset(
            folder / split,
            {"tokens": rows},
            packing.fields,
            shard_bytes=2000,
            split=split,
            workload=packing.info,
        )


def container(data: Path, root: Path) -> Path:
    """A training container's folders over a copy of the data."""
    shutil.copytree(data, root / "input/data")
    return root


def distance(curve: dict[int, float], reference: dict[int, float]) -> float:
    """The largest relative difference over the steps, which have to be the same ones."""
    if curve.keys() != reference.keys():
        raise ValueError(f"steps {sorted(curve)} are not those of the reference")
    return max(abs(curve[step] / reference[step] - 1) for step in curve)
