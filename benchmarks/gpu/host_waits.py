"""Waits of the host for the device in a training step that is not logged.

On a GPU torch warns of each (``torch.cuda.set_sync_debug_mode``). On a processor nothing waits:
there ``benchmarks.host_reads`` notes what would.
"""

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from benchmarks.gpu.findings import LATE, SMALL, Finding, Frame, contained
from benchmarks.gpu.short_training import (
    GPT2,
    SMOKE,
    Shape,
    WatchedLoop,
    forget,
    random_tokens,
    trained,
)
from benchmarks.host_reads import STEPS, WATCHED, noted
from training.data.dataset import Dataset

CASES: dict[str, dict[str, Any]] = {
    "AdamW": {},
    "LAMB, averages": {"optimizer": "lamb", "ema_decay": 0.9},
    "float16": {"precision": "float16"},
    "float8": {"float8": "rowwise"},
    "recomputed": {"activation_checkpointing": "selective"},
    "compiled": {"compile": True},
}
CALLED = "called a synchronizing CUDA operation"
"""torch's warning (c10::cuda::warn_or_error_on_sync); it warns of the mode itself, too."""
SLOW = ("compiled",)
"""Cases that take a processor too long for ``--smoke``."""


def findings(frame: Frame) -> Iterator[Finding]:
    """Yield the waits of each kind of step."""
    shape = replace(SMOKE, batch=16) if frame.smoke else replace(GPT2, batch=8)
    shape = replace(shape, warm_up=STEPS["max_steps"], steps=0)
    data = random_tokens(shape, frame.scratch / "data")
    for name, differs in CASES.items():
        if frame.smoke and name in SLOW:
            yield Finding.without(name, SMALL)
        elif time.monotonic() > frame.until:
            yield Finding.without(name, LATE)
        else:
            yield from contained(name, counted(frame, shape, data, name, differs))


def counted(
    frame: Frame, shape: Shape, data: Dataset, name: str, differs: dict[str, Any]
) -> Iterator[Finding]:
    """Train some steps; yield the waits of those that are watched."""
    forget(frame.device)
    found: list[str] = []

    @contextmanager
    def around(loop: WatchedLoop) -> Iterator[None]:
        if loop.step + 1 not in WATCHED:
            yield
        elif frame.device.type == "cuda":
            with warned(found):
                yield
        else:
            with noted(loop) as reads:
                yield
            found.extend(f"{read.what} {read.where}" for read in reads.found)

    given = STEPS | {"precision": "bfloat16", "compile": False} | differs
    trained(shape, data, around, **given)
    waits = len(found) / len(WATCHED)
    where = f"; first: {found[0]}" if found else ""
    why = f"a step that is not logged reads no number (docs/scale.md){where}"
    yield Finding.held(f"{name}: waits a step", waits, 0, why, quoted=True)
    if frame.device.type != "cuda":
        yield Finding.held(f"{name}: would-be waits a step", waits, 0, why, of_gpu=False)


@contextmanager
def warned(found: list[str]) -> Iterator[None]:
    """Context in which torch notes in ``found`` where the host waits for the device."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode("default")
    found += [f"{one.filename}:{one.lineno}" for one in caught if CALLED in str(one.message)]
