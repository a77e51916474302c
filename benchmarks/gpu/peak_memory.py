"""Memory and speed of the train job beside what foresight says of its memory.

Measured is ``torch.cuda.max_memory_allocated``, which the job's metric lines have; foreseen is
``trainyard.foresight.memory`` without the allocator's reserve.
cuBLAS's workspace (32 MiB on Hopper, torch's CUDA semantics) is in the measured figure alone.
"""

import json
import shutil
import statistics
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.gpu.findings import LATE, SMALL, Finding, Frame, contained
from benchmarks.gpu.loss_curves import SECONDS, Training
from benchmarks.strategies.cases import container
from pipelines.advice.training_setting import of_job
from tests.training import worlds
from tests.training.trainings import history
from training.data.shard_writer import write_dataset
from training.workloads import load_packing
from trainyard.foresight import memory

GPUS = max(1, torch.cuda.device_count())
FLOAT8 = {"float8": "tensorwise", "compile": True}
ALL = {"strategy": "fsdp"}
LAYOUTS: dict[str, tuple[int, dict[str, Any]]] = {
    "single": (1, {}),
    "selective": (1, {"activation_checkpointing": "selective"}),
    "full": (1, {"activation_checkpointing": "full"}),
    "FSDP2 × 1": (1, ALL),
    "compiled": (1, {"compile": True}),
    "float8, compiled": (1, FLOAT8),
    f"FSDP2 × {GPUS}": (GPUS, ALL),
    f"FSDP2 × {GPUS}, compiled": (GPUS, ALL | {"compile": True}),
    f"FSDP2 × {GPUS}, float8 gathered": (GPUS, ALL | FLOAT8 | {"float8_all_gather": True}),
}
"""Name → (ranks, what differs)."""
MOST = 10.0
WHY = "foresight's promise: 85 % of published peaks within 10 % (tests/benchmarks/test_memories.py)"
FULL = {"context_length": 1024, "layers": 6, "heads": 16, "dim": 1024, "vocabulary": 50_304}
TINY = {"context_length": 16, "layers": 2, "heads": 2, "dim": 16}
WARM_UP, MEASURED = 5, 10
MACHINE = "ml.p5en.48xlarge"
"""Where foresight takes the training to run: memory does not depend on it."""


def findings(frame: Frame) -> Iterator[Finding]:
    """Yield each layout's memory and speed, and how far off the forecasts are."""
    model = TINY if frame.smoke else FULL
    write_tokens(frame.scratch / "data", model)
    for name, (world, differs) in LAYOUTS.items():
        if frame.smoke and (differs.get("compile") or world > 1):
            yield Finding.without(name, SMALL)
        elif time.monotonic() > frame.until:
            yield Finding.without(name, LATE)
        else:
            yield from contained(name, told(frame, name, world, differs, model))


def write_tokens(folder: Path, model: Mapping[str, Any]) -> None:
    """Write shards of uniformly random tokens; speed does not depend on the text."""
    packing = load_packing("language_model", dict(model))
    random = np.random.default_rng(0)
    for split, count in (("train", 4096), ("validation", 64)):
        shape = (count, model["context_length"] + 1)
        tokens = random.integers(0, 257, shape).astype(np.uint16)
        (folder / split).mkdir(parents=True)
        write_dataset(
            folder / split,
            {"tokens": tokens},
            packing.fields,
            shard_bytes=64 << 20,
            split=split,
            workload=packing.info,
        )


def settings(frame: Frame, differs: Mapping[str, Any], world: int) -> dict[str, Any]:
    """Return the loop's settings: two micro-batches a step."""
    steps, batch = (2, 2) if frame.smoke else (WARM_UP + MEASURED, 8)
    return {
        **{"strategy": "single", "precision": "bfloat16", "learning_rate": 3e-4},
        **{"max_steps": steps, "micro_batch": batch, "global_batch": 2 * batch * world},
        **{"log_interval": 1, "validation_interval": steps, "validation_samples": 1},
        **{"checkpoint_interval": steps, **differs},
    }


def forecasts(loop: Mapping[str, Any], model: Mapping[str, Any], world: int) -> dict[str, float]:
    """Return whose forecast → MB that are allocated on the fullest rank."""
    said = {name: str(value) for name, value in loop.items()}
    said |= {"workload": "language_model", "workload_config": json.dumps(model)}
    foreseen = memory.foresee(of_job(said, MACHINE, 1, world).setting)
    allocated = foreseen.peak.p50 - foreseen.categories["reserve"].p50
    return {"foreseen": allocated * memory.GIB / 1e6}


def told(
    frame: Frame, name: str, world: int, differs: dict[str, Any], model: dict[str, Any]
) -> Iterator[Finding]:
    """Train one layout; yield its figures."""
    loop, root = settings(frame, differs, world), frame.scratch / name.replace(" ", "-")
    container(frame.scratch / "data", root)
    workload = {"workload": "language_model", "workload_config": json.dumps(model)}
    begun = Training(root, worlds.start(root, world, **loop, **workload))
    said = forecasts(loop, model, world)
    begun.curve(min(SECONDS, frame.until + 10 - time.monotonic()))
    lines = history(root)
    shutil.rmtree(root)
    steps = [line for line in lines if "loss" in line]
    steps = [line for line in steps if line["step"] > WARM_UP] or steps
    measured = max(line["memory_mb"] for line in steps)
    yield Finding(what=f"{name}: allocated", rounds=(measured,), unit="MB")
    for who, size in said.items():
        yield Finding(what=f"{name}: {who}", rounds=(size,), unit="MB", of_gpu=False)
        off, what = 100 * (size / measured - 1), f"{name}: {who} ÷ allocated − 1"
        if differs.get("compile"):  # the forecast is of eager blocks, which keep more
            yield Finding(what=what, rounds=(off,), unit="%")
        else:
            yield Finding.held(what, off, MOST, WHY, unit="%", quoted=True)
    for key, unit in (("units_per_second", "tokens/s"), ("mfu", "")):
        if key in steps[0]:
            speed = statistics.median(line[key] for line in steps)
            yield Finding(what=f"{name}: {key}", rounds=(speed,), unit=unit)
