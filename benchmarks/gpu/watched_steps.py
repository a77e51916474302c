"""Profile one step of a training: which kernels it used, and where the host waited.

Names of kernels follow from cuDNN, FlashAttention, CUTLASS and cuBLAS; ``triton`` is what
torch.compile has made. torch warns of each wait (``torch.cuda.set_sync_debug_mode``).
"""

import re
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from benchmarks.gpu.findings import Finding, Frame
from benchmarks.gpu.short_training import GPT2, SMOKE, WatchedLoop, train_shape, write_tokens

PLAIN = {"log_interval": 100, "validation_interval": 100, "checkpoint_interval": 100,
         "compile": False}  # fmt: skip
STEP = 5
"""Step that is watched, of 6: it is not logged, and comes after what only first steps do."""
PROFILED: dict[str, dict[str, Any]] = {
    "eager": {},
    "compiled": {"compile": True},
    "float8": {"float8": "tensorwise"},
    "documents": {},  # nothing attends across them
}
AWAITED: dict[str, dict[str, Any]] = {
    "AdamW": {},
    "LAMB, averages": {"optimizer": "lamb", "ema_decay": 0.9},
    "float16": {"precision": "float16"},
    "float8": {"float8": "rowwise"},
    "recomputed": {"activation_checkpointing": "selective"},
    "compiled": {"compile": True},
}
KINDS = {
    "attention": r"^(?!triton_(poi|red|per)).*(flash|fmha|sdpa|flex_attention)",
    "compiled": r"^triton",
    "matrix products": r"nvjet|gemm|cutlass|xmma|cublas|scaled_mm|aten::(add|b)?mm$",
    "optimizer": r"FusedAdam|fused_adam",
    "copies": r"Memcpy|Memset|aten::copy_",
    "other": r"",
}
"""Kind of a kernel → pattern of its name; the first that matches counts."""
FUSED, APART = "aten::_fused_adamw_", ("aten::_foreach_addcdiv_", "aten::addcdiv_")
"""Operators of AdamW in one kernel, and in several."""
EIGHT, CALLED = "aten::_scaled_mm", "called a synchronizing CUDA operation"
"""The product in 8 bits; torch's warning, which warns of the mode itself, too."""


def iter_kernel_findings(frame: Frame) -> Iterator[Finding]:
    """Yield the kernels that one step of GPT-2's shape used in each case."""
    cuda = frame.device.type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]

    def profile_kernels(name: str, settings: Mapping[str, Any]) -> Iterator[Finding]:
        seen = profile(activities=activities)
        kept = {"attend": "document"} if name == "documents" else {}
        train_watched(frame, name, settings, seen, **kept)
        for one in describe_events(seen.key_averages(), cuda=cuda, float8="float8" in settings):
            yield replace(one, what=f"{name}: {one.what}")

    yield from frame.iter_case_findings(PROFILED, lambda name: name == "compiled", profile_kernels)


def iter_wait_findings(frame: Frame) -> Iterator[Finding]:
    """Yield how often the host waits for the device in each kind of step; 0 on a processor."""

    def count_waits(name: str, differs: Mapping[str, Any]) -> Iterator[Finding]:
        found: list[str] = []
        cuda = frame.device.type == "cuda"
        around = record_sync_warnings(found) if cuda else nullcontext()
        train_watched(frame, f"wait {name}", differs, around)
        first = f"; first: {found[0]}" if found else ""
        why = f"a step that is not logged reads no number (docs/scale.md){first}"
        yield Finding.from_bound(f"{name}: waits in a step", len(found), 0, why)

    yield from frame.iter_case_findings(AWAITED, lambda name: name == "compiled", count_waits)


def train_watched(
    frame: Frame, name: str, settings: Mapping[str, Any], around: Any, **model: Any
) -> None:
    """Train some steps, the step ``STEP`` in the context ``around``; ``model``: changed sizes."""
    shape = replace(SMOKE, batch=16) if frame.smoke else replace(GPT2, batch=8)
    shape = replace(shape, warm_up=STEP + 1, steps=0, model={**shape.model, **model})

    def enter_watched_step(loop: WatchedLoop) -> Any:
        return around if loop.step + 1 == STEP else nullcontext()

    tokens = write_tokens(shape, frame.scratch / name)
    train_shape(shape, tokens, enter_watched_step, **{**PLAIN, **settings})


@contextmanager
def record_sync_warnings(found: list[str]) -> Iterator[None]:
    """Add the lines of code where the host waited for the device to ``found``."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode("default")
    found += [f"{one.filename}:{one.lineno}" for one in caught if CALLED in str(one.message)]


def describe_events(events: Any, *, cuda: bool, float8: bool) -> Iterator[Finding]:
    """Yield findings about the profiler's events of one step."""
    ran = Counter({one.key: one.count for one in events if one.device_type == DeviceType.CPU})
    attention = [n for n in ran if re.match(r"aten::_scaled_dot_product_\w+(?<!backward)$", n)]
    yield Finding(what="attention operator", text=", ".join(attention) or "none")
    written = ran["aten::_scaled_dot_product_attention_math"]
    yield Finding.from_bound("attention that writes its scores", written, 0, "fused kernels do not")
    apart = sum(ran[name] for name in APART) + (not ran[FUSED])
    why = f"AdamW in one kernel: {FUSED} ran {ran[FUSED]} ×, and none of {', '.join(APART)}"
    yield Finding.from_bound("updates that are not fused", apart, 0, why, of_gpu=False)
    if float8:
        none = float(not ran[EIGHT])
        yield Finding.from_bound("no product in 8 bits", none, 0, f"{EIGHT} ran {ran[EIGHT]} ×")
    took = {one.key: one.self_cpu_time_total for one in events}
    if cuda:
        took = {one.key: one.self_device_time_total for one in events
                if one.device_type == DeviceType.CUDA and not one.is_user_annotation}  # fmt: skip
    whole = sum(took.values())
    for kind in KINDS:
        mine = {name: time for name, time in took.items() if classify_kernel(name) == kind}
        tops = sorted(mine, key=mine.__getitem__, reverse=True)[:3]
        named = "; ".join(f"{name[:70]} {100 * mine[name] / whole:.1f} %" for name in tops)
        share = (100 * sum(mine.values()) / whole,)
        yield Finding(what=f"{kind}, share of the time", rounds=share, unit="%", limit=named)


def classify_kernel(name: str) -> str:
    """Return the kind of a kernel, a key of ``KINDS``."""
    return next(kind for kind, pattern in KINDS.items() if re.search(pattern, name))
