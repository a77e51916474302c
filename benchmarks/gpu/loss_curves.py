"""Loss curves of the train job on a GPU beside those of the same job on this machine's processor.

The job, its seed and its samples are those of ``benchmarks.strategies``; the model is wider, so
that attention has heads of 64. TF32 is off, torch's default.
"""

import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu.findings import LATE, SMALL, Finding, Frame, contained
from benchmarks.strategies.cases import CASES, MODEL, SETTINGS, TOLERANCE, container, write_data
from benchmarks.strategies.runs import distance, reason
from tests.training import worlds
from tests.training.trainings import losses

SECONDS = 120  # that one training may take, compilation included
NUMBERS: dict[str, dict[str, Any]] = {
    **{name: {"precision": name} for name in ("float64", "float32", "bfloat16")},
    "float8": {"precision": "bfloat16", "float8": "tensorwise"},
    "documents": {"precision": "float32"},  # kept apart: FlexAttention on a GPU
}
LIMITS: dict[str, tuple[float, str]] = {
    "float64": (TOLERANCE["float64"], "900 × the unit roundoff 2^-53 (IEEE 754)"),
    "float32": (
        1e-5,
        "170 × the unit roundoff 2^-24 (IEEE 754): attention multiplies float32 as three TF32 "
        "products, which drop 2^-22 (CUTLASS, OpMultiplyAddFastF32); products in TF32 alone, "
        "emulated on a processor, are 1e-4 away (2026-11-27)",
    ),
    "documents": (1e-5, "as float32"),
    "bfloat16": (TOLERANCE["bfloat16"], "1.3 × the unit roundoff 2^-8 (8 bits of precision)"),
    "float8": (
        2e-2,
        "thrice what compilation alone does to it on a processor (7e-3, 2026-11-27): e4m3 rounds "
        "to 2^-4; that its products are in 8 bits is what the kernels show",
    ),
}
"""Numbers → largest relative difference of a loss from the processor's, and the reason."""
SAME = TOLERANCE["float32"], "as benchmarks.strategies demands it of every layout"


@dataclass(frozen=True, slots=True)
class Case:
    """A training on the GPU, and the numbers whose curve on the processor it is held to."""

    numbers: str
    world: int = 1
    differs: Mapping[str, Any] = field(default_factory=dict)
    tf32: bool = False
    """Whether float32 multiplies in TF32: what the limit has to tell apart, so it is only told."""


LAYOUTS: dict[str, Case] = {
    **{name: Case(name) for name in ("float32", "float64", "bfloat16", "documents")},
    "FSDP2 × 1": Case("float32", 1, {"strategy": "fsdp"}),
    "recomputation, selective": Case("float32", 1, {"activation_checkpointing": "selective"}),
    "recomputation, full": Case("float32", 1, {"activation_checkpointing": "full"}),
    "compiled": Case("float32", 1, {"compile": True}),
    "TF32, to compare": Case("float32", tf32=True),
    "bfloat16, compiled": Case("bfloat16", 1, {"compile": True}),
    "float8": Case("float8"),
    "float8, compiled": Case("float8", 1, {"compile": True}),
    "FSDP2 × 1, offloaded": Case("float32", 1, {"strategy": "fsdp", "cpu_offload": True}),
    **{
        name: Case("float32", *CASES[name])
        for name in (
            *("DDP × 2", "FSDP2 × 2", "FSDP2 × 4", "FSDP2 × 4, resharded to 2", "hybrid 2 × 2"),
            *("FSDP2 × 2, prefetch", "FSDP2 × 2, unsharded gradients", "tensor × 2"),
            *("tensor × 2, compiled", "pipeline × 2", "pipeline × 2, interleaved_1f1b"),
            *("context × 2", "FSDP2 × 2, tensor × 2", "FSDP2 × 2, context × 2, tensor × 2"),
            "FSDP2 × 2, tensor × 2, pipeline × 2",
        )
    },
}
"""In the order in which they run; those that need more GPUs than there are do not."""
SLOW = ("bfloat16, compiled", "float8, compiled", "FSDP2 × 1, offloaded")
"""Layouts that ``--smoke`` leaves out."""


@dataclass(slots=True)
class Training:
    """A training that has begun."""

    root: Path
    processes: list[BaseProcess]

    def curve(self, seconds: float) -> dict[int, float]:
        """Wait for its end; return its losses by step.

        Raises:
            TimeoutError: it has not ended after so many seconds, fewer than it may take.
            RuntimeError: it failed, or took longer than it may; says why.
        """
        codes = worlds.finish(self.processes, seconds)
        if None in codes:
            kind = TimeoutError if seconds < SECONDS else RuntimeError
            raise kind(f"it did not end within {seconds:.0f} s")
        if any(codes):
            raise RuntimeError(reason(self.root) or f"its ranks ended with {codes}")
        return losses(self.root)


def findings(frame: Frame) -> Iterator[Finding]:
    """Yield how far each layout's curve on the device is from the processor's."""
    write_data(frame.scratch / "data")
    curves = Curves(frame)
    for name, case in LAYOUTS.items():
        if case.world > max(1, torch.cuda.device_count()):
            continue
        if frame.smoke and name in SLOW:
            yield Finding.without(name, SMALL)
        elif time.monotonic() > frame.until:
            yield Finding.without(name, LATE)
        else:
            yield from contained(name, told(name, case, curves))
    yield from contained("on the processor", between(curves))


class Curves:
    """Curves of the device, and of the processor, which trains beside it from the beginning."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self._begun = {
            name: begin(frame, f"CPU {name}", Case(name), hidden=True) for name in NUMBERS
        }
        self._expected: dict[str, dict[int, float]] = {}
        self.alone: dict[int, float] = {}
        """One GPU's in float32."""

    def of_processor(self, numbers: str) -> dict[int, float]:
        """Return the processor's losses by step, once they are there."""
        if numbers not in self._expected:
            self._expected[numbers] = self._begun[numbers].curve(SECONDS)
        return self._expected[numbers]

    def of_device(self, name: str, case: Case) -> dict[int, float]:
        """Train, and return the losses by step."""
        seconds = min(SECONDS, self._frame.until + 10 - time.monotonic())
        curve = begin(self._frame, name, case).curve(seconds)
        self.alone = curve if name == "float32" else self.alone
        return curve


def told(name: str, case: Case, curves: Curves) -> Iterator[Finding]:
    """Yield a curve's largest relative difference from the processor's, and from one GPU's."""
    curve, what = curves.of_device(name, case), f"{name}: from the processor's curve"
    apart = distance(curve, curves.of_processor(case.numbers))
    if case.tf32:
        yield Finding(what=what, rounds=(apart,))
        return
    most, why = LIMITS[case.numbers]
    yield Finding.held(what, apart, most, why, quoted=True)
    if curves.alone and case.numbers == "float32" and curve is not curves.alone:
        most, why = LIMITS["float32"] if case.differs.get("compile") else SAME
        apart = distance(curve, curves.alone)
        yield Finding.held(f"{name}: from one GPU's curve", apart, most, why)


def between(curves: Curves) -> Iterator[Finding]:
    """Yield what the numbers themselves do to the processor's curve: what limits can tell apart."""
    exact = curves.of_processor("float32")
    for name in ("bfloat16", "float8"):
        apart = distance(curves.of_processor(name), exact)
        what = f"on the processor: {name} from float32"
        yield Finding(what=what, rounds=(apart,), of_gpu=False)
    fell = exact[1] - min(exact.values())
    yield Finding(what="on the processor: fall of the loss", rounds=(fell,), of_gpu=False)


def begin(frame: Frame, name: str, case: Case, *, hidden: bool = False) -> Training:
    """Begin a training in processes of its own; ``hidden``: GPUs are, so a processor trains."""
    root = container(frame.scratch / "data", frame.scratch / name.replace(" ", "-"))
    steps = 3 if frame.smoke else 30
    model = MODEL | ({"heads": 2} if frame.smoke else {"dim": 256})  # FlexAttention: heads of 16
    if case.numbers == "documents":
        model = model | {"attend": "document"}
    loop = {"strategy": "single", "max_steps": steps}
    settings = SETTINGS | loop | {"workload_config": json.dumps(model)} | NUMBERS[case.numbers]
    target = partial(run_rank, hidden, case.tf32)
    given = settings | dict(case.differs)
    return Training(root, worlds.start(root, case.world, target=target, **given))


def run_rank(
    hidden: bool, tf32: bool, given: list[str], environment: dict[str, str], root: Path, rank: int
) -> None:
    """Run one rank of the train job, with GPUs hidden from it or products in TF32."""
    if hidden:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # read when CUDA is first used
    if tf32:
        torch.set_float32_matmul_precision("high")
    worlds.run_rank(given, environment, root, rank)
