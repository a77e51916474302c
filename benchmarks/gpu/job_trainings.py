"""The train job on a GPU: its loss curves beside a processor's, its memory beside the forecast.

The job of the curves is that of ``benchmarks.strategies``; the model is wider, so that attention
has heads of 64. TF32 is off, torch's default. The memory measured is
``torch.cuda.max_memory_allocated``, with cuBLAS's workspace (32 MiB on Hopper); predicted is
``trainyard.foresight.memory`` without the allocator's reserve and that.
"""

import json
import os
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.gpu.findings import Finding, Frame
from benchmarks.gpu.short_training import Shape, write_tokens
from benchmarks.strategies import find_failure_reason
from pipelines.advice.training_setting import derive_job_training
from tests.training import worlds
from tests.training.strategies.cases import MODEL, SETTINGS, container, distance, write_data
from tests.training.trainings import history, losses
from trainyard.foresight import memory

LAYOUTS: dict[str, dict[str, Any]] = {
    "single": {},
    "FSDP2": {"strategy": "fsdp"},
    "recomputation, selective": {"activation_checkpointing": "selective"},
    "recomputation, full": {"activation_checkpointing": "full"},
    "compiled": {"compile": True},
    "float8, compiled": {"float8": "tensorwise", "compile": True},
}
"""Name → settings that differ from plain training on one GPU."""
NUMBERS: dict[str, dict[str, Any]] = {
    **{name: {"precision": name} for name in ("float32", "float64", "bfloat16")},
    "documents": {"precision": "float32"},  # kept apart: FlexAttention on a GPU
    "float8": {"precision": "bfloat16", "float8": "tensorwise"},
}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in NUMBERS},
    **{name: ("float32", dict(LAYOUTS[name])) for name in [*LAYOUTS][1:5]},
    "bfloat16, compiled": ("bfloat16", {"compile": True}),
    "float8, compiled": ("float8", {"compile": True}),
    "FSDP2, offloaded": ("float32", {"strategy": "fsdp", "cpu_offload": True}),
}
"""Name → (key of ``NUMBERS`` whose curve on the processor is the reference, what differs)."""
SLOW = ("bfloat16, compiled", "float8, compiled", "FSDP2, offloaded")
LIMITS: dict[str, tuple[float, str]] = {
    "float64": (1e-13, "900 × the unit roundoff 2^-53 (IEEE 754)"),
    "float32": (
        1e-5,
        "170 × the unit roundoff 2^-24 (IEEE 754): attention multiplies float32 as three TF32 "
        "products, which drop 2^-22 (CUTLASS); TF32 alone is 1e-4 away (2026-11-27)",
    ),
    "documents": (1e-5, "as float32"),
    "bfloat16": (5e-3, "1.3 × the unit roundoff 2^-8 (8 bits of precision)"),
    "float8": (
        2e-2,
        "thrice what compilation alone does to it on a processor (7e-3, 2026-11-27); that its "
        "products are in 8 bits is what the kernels show",
    ),
}
"""Key of ``NUMBERS`` → (largest relative difference of a loss from the processor's, reason)."""
MOST = 10.0, "85 % of published peaks are foreseen within 10 % (tests/benchmarks/test_memories.py)"
FULL = {"context_length": 1024, "layers": 6, "heads": 16, "dim": 1024, "vocabulary": 50_304}
TINY = {"context_length": 16, "layers": 2, "heads": 2, "dim": 16}
WARM_UP, MEASURED = 5, 10
MACHINE = "ml.p5en.48xlarge"
"""Machine that the prediction is for: memory does not depend on it."""


class Training:
    """A training that runs in its own process; ``hidden``: it sees no GPU."""

    def __init__(self, frame: Frame, name: str, settings: Mapping[str, Any], hidden: bool = False):
        self.root = container(frame.scratch / "data", frame.scratch / name.replace(" ", "-"))
        self._process = worlds.start(self.root, 1, target=partial(run_rank, hidden), **settings)
        self._frame = frame

    def wait_for_end(self) -> Path:
        """Wait until it ends; return its folder. Raises TimeoutError; RuntimeError if it failed."""
        [code] = worlds.finish(self._process, self._frame.seconds_left)
        if code is None:
            raise TimeoutError("it did not end")
        if code:
            raise RuntimeError(find_failure_reason(self.root) or f"it ended with {code}")
        return self.root


def run_rank(
    hidden: bool, given: list[str], environment: dict[str, str], root: Path, rank: int
) -> None:
    """Run the train job as one rank; ``hidden``: it sees no GPU."""
    if hidden:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # read when CUDA is first used
    worlds.run_rank(given, environment, root, rank)


def iter_curve_findings(frame: Frame) -> Iterator[Finding]:
    """Yield how far each layout's loss curve is from the processor's, which trains meanwhile."""
    write_data(frame.scratch / "data")
    loop = SETTINGS | {"strategy": "single", "max_steps": 3 if frame.smoke else 30}

    def begin(name: str, numbers: str, differs: Mapping[str, Any], hidden: bool) -> Training:
        wide = {"heads": 2} if frame.smoke else {"dim": 256}  # FlexAttention: heads of 16
        model = MODEL | wide | ({"attend": "document"} if numbers == "documents" else {})
        own = NUMBERS[numbers] | {"workload_config": json.dumps(model)}
        return Training(frame, name, {**loop, **own, **differs}, hidden)

    begun = {name: begin(f"CPU {name}", name, {}, hidden=True) for name in NUMBERS}
    expected: dict[str, dict[int, float]] = {}

    def compare_curve(name: str, case: tuple[str, dict[str, Any]]) -> Iterator[Finding]:
        curve, numbers = losses(begin(name, *case, hidden=False).wait_for_end()), case[0]
        if numbers not in expected:
            expected[numbers] = losses(begun[numbers].wait_for_end())
        apart = distance(curve, expected[numbers])
        yield Finding.from_bound(f"{name}: from the processor's curve", apart, *LIMITS[numbers])

    yield from frame.iter_case_findings(CASES, SLOW.__contains__, compare_curve)


def iter_memory_findings(frame: Frame) -> Iterator[Finding]:
    """Yield each layout's memory and how far off its forecast is; a step has two micro-batches."""
    model = TINY if frame.smoke else FULL
    steps, batch = (2, 2) if frame.smoke else (WARM_UP + MEASURED, 8)
    for split, count in (("train", 4096), ("validation", 64)):
        write_tokens(Shape(model=model, batch=1), frame.scratch / "data" / split, count, split)
    loop = {"strategy": "single", "precision": "bfloat16", "learning_rate": 3e-4, "log_interval": 1,
            "max_steps": steps, "validation_interval": steps, "checkpoint_interval": steps,
            "micro_batch": batch, "global_batch": 2 * batch, "validation_samples": 1,
            "workload": "language_model", "workload_config": json.dumps(model)}  # fmt: skip

    def compare_peak(name: str, differs: Mapping[str, Any]) -> Iterator[Finding]:
        given = {**loop, **differs}
        root = Training(frame, name, given).wait_for_end()
        lines = [line for line in history(root) if "loss" in line]
        steady = [line for line in lines if line["step"] > WARM_UP] or lines
        measured = max(line["memory_mb"] for line in steady)
        yield Finding(what=f"{name}: allocated", rounds=(measured,), unit="MB")
        texts = {key: str(value) for key, value in given.items()}
        foreseen = memory.predict_memory(derive_job_training(texts, MACHINE, 1, 1).setting)
        size = (foreseen.peak.p50 - foreseen.categories["reserve"].p50) * memory.GIB / 1e6
        yield Finding(what=f"{name}: foreseen", rounds=(size,), unit="MB", of_gpu=False)
        off, what = 100 * (size / measured - 1), f"{name}: foreseen ÷ allocated − 1"
        if differs.get("compile"):  # the forecast is of eager blocks, which keep more
            yield Finding(what=what, rounds=(off,), unit="%")
        else:
            yield Finding.from_bound(what, off, *MOST, unit="%")

    yield from frame.iter_case_findings(LAYOUTS, lambda name: "compiled" in name, compare_peak)
