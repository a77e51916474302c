"""Kernels of a training step as torch's profiler sees them: attention, products, the optimizer.

Names of kernels follow from cuDNN (``cudnn_generated_…sdpa``), FlashAttention (``flash_fwd``),
CUTLASS (``fmha_cutlass``, ``cutlass_…``) and cuBLAS (``nvjet``, ``…gemm…``); ``triton`` is what
torch.compile has made.
"""

import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

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

CASES: dict[str, dict[str, Any]] = {
    "eager": {},
    "compiled": {"compile": True},
    "float8": {"float8": "tensorwise"},
    "documents": {},  # nothing attends across them
}
STEP = 5
"""Step that is profiled: not logged, and after what only the first ones do."""
KINDS = {
    "attention": r"^(?!triton_(poi|red|per)).*(flash|fmha|sdpa|flex_attention)",
    "compiled": r"^triton",
    "matrix products": r"nvjet|gemm|cutlass|xmma|cublas|scaled_mm|aten::(add|b)?mm$",
    "optimizer": r"FusedAdam|fused_adam",
    "copies": r"Memcpy|Memset|aten::copy_",
    "other": r"",
}
"""Kind of a kernel → what its name has; the first that fits."""
FUSED, APART = "aten::_fused_adamw_", ("aten::_foreach_addcdiv_", "aten::addcdiv_")
"""Operators of AdamW in one kernel, and in several."""
EIGHT = "aten::_scaled_mm"
WAITS = ("cudaStreamSynchronize", "cudaEventSynchronize")


def findings(frame: Frame) -> Iterator[Finding]:
    """Yield the kernels of GPT-2's shape in each case."""
    shape = replace(SMOKE if frame.smoke else GPT2, warm_up=STEP + 1, steps=0)
    for name, settings in CASES.items():
        kept = {"attend": "document"} if name == "documents" else {}
        one = replace(shape, model={**shape.model, **kept})
        if frame.smoke and settings.get("compile"):
            yield Finding.without(f"{name}: kernels", SMALL)
        elif time.monotonic() > frame.until:
            yield Finding.without(f"{name}: kernels", LATE)
        else:
            yield from contained(f"{name}: kernels", profiled(frame, one, name, settings))


def profiled(
    frame: Frame, shape: Shape, name: str, settings: Mapping[str, Any]
) -> Iterator[Finding]:
    """Train some steps; yield what one of them used."""
    forget(frame.device)
    cuda = frame.device.type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
    seen = profile(activities=activities)

    def around(loop: WatchedLoop) -> AbstractContextManager:
        return seen if loop.step + 1 == STEP else nullcontext()

    data = random_tokens(shape, frame.scratch / name)
    trained(shape, data, around, **{"compile": False, "log_interval": 100, **settings})
    for one in told(seen.key_averages(), cuda=cuda, float8="float8" in settings):
        yield replace(one, what=f"{name}: {one.what}")


def told(events: Any, *, cuda: bool, float8: bool) -> Iterator[Finding]:
    """Yield what the events of one step say."""
    ran = Counter({one.key: one.count for one in events if one.device_type == DeviceType.CPU})
    attention = [name for name in ran if re.match(r"aten::_scaled_dot_product_\w+$", name)]
    attention = [name for name in attention if not name.endswith("backward")]
    yield Finding(what="attention operator", text=", ".join(attention) or "none", quoted=True)
    written = ran["aten::_scaled_dot_product_attention_math"]
    yield Finding.held("attention that writes its scores", written, 0, "fused kernels do not")
    apart = sum(ran[name] for name in APART) + (not ran[FUSED])
    why = f"AdamW in one kernel: {FUSED} ran {ran[FUSED]} ×, and none of {', '.join(APART)}"
    yield Finding.held("updates that are not fused", apart, 0, why, of_gpu=False)
    if float8:
        none = float(not ran[EIGHT])
        yield Finding.held("no product in 8 bits", none, 0, f"{EIGHT} ran {ran[EIGHT]} ×")
    if cuda:
        waits = sum(ran[name] for name in WAITS)
        yield Finding.held("waits of the host", waits, 0, f"{', '.join(WAITS)} in the step")
    yield from shares(spent(events, cuda=cuda))


def shares(took: Mapping[str, float]) -> Iterator[Finding]:
    """Yield each kind's share of the time, and its longest kernels."""
    whole = sum(took.values())
    for kind in KINDS:
        mine = {name: time for name, time in took.items() if kind_of(name) == kind}
        tops = sorted(mine, key=mine.__getitem__, reverse=True)[:3]
        named = "; ".join(f"{name[:70]} {100 * mine[name] / whole:.1f} %" for name in tops)
        yield Finding(
            what=f"{kind}, share of the time",
            rounds=(100 * sum(mine.values()) / whole,),
            unit="%",
            quoted=kind in ("attention", "matrix products"),
        )
        yield Finding(what=f"{kind}, longest", text=named or "none")


def spent(events: Any, *, cuda: bool) -> dict[str, float]:
    """Return kernel → microseconds; without CUDA operator → the processor's."""
    if not cuda:
        return {one.key: one.self_cpu_time_total for one in events}
    return {
        one.key: one.self_device_time_total
        for one in events
        if one.device_type == DeviceType.CUDA and not one.is_user_annotation
    }


def kind_of(name: str) -> str:
    """Return the kind of a kernel."""
    return next(kind for kind, pattern in KINDS.items() if re.search(pattern, name))
