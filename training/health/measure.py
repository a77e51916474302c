"""Measures a GPU and its links in seconds. Not run on a GPU so far; on a CPU in the tests."""

import time
from collections.abc import Callable
from statistics import median

import torch
import torch.distributed as dist
from torch import Tensor

SIZE = 8192
"""Rows and columns of the matrices: 1.1e12 operations a product, 134 MB a matrix of 16 bits."""

PRODUCTS = 60
PAYLOAD = 256 * 10**6
"""Bytes of an all-reduce: enough to fill the links, and a second over slow ones."""

EXCHANGES = 8
WARM = 3
"""Runs before those that are timed: kernels are loaded, connections made, clocks raised."""


def precision(device: torch.device) -> torch.dtype:
    """bfloat16; float16 on GPUs before Ampere, which only emulate it."""
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < (8, 0):
        return torch.float16
    return torch.bfloat16


def matmul(device: torch.device, size: int = SIZE, times: int = PRODUCTS) -> tuple[float, int]:
    """(operations a second, sum of the product's bits), of random numbers, the same on each rank.

    Random ones, since a GPU is faster with zeros or small integers: switching bits takes power.
    """
    numbers = torch.Generator(device).manual_seed(0)  # not the training's
    kind = precision(device)
    a, b = (torch.randn(size, size, generator=numbers, device=device, dtype=kind) for _ in range(2))
    out = torch.empty_like(a)
    seconds = timed(device, lambda: torch.mm(a, b, out=out), times)
    return 2 * size**3 / seconds, int(out.view(torch.int16).sum(dtype=torch.int64))


def all_reduce(
    device: torch.device, group: dist.ProcessGroup | None = None, payload: int = PAYLOAD
) -> float:
    """Bus bandwidth of a group's all-reduce, bytes a second, as nccl-tests counts it."""
    n = dist.get_world_size(group)
    values = torch.zeros(payload // 2, dtype=precision(device), device=device)
    seconds = timed(device, lambda: dist.all_reduce(values, group=group), EXCHANGES)
    return payload / seconds * 2 * (n - 1) / n


def timed(device: torch.device, call: Callable[[], Tensor | None], times: int) -> float:
    """Median seconds of a call; on CUDA between events of the current stream, which waits for
    NCCL's after a collective."""
    for _ in range(WARM):
        call()
    if device.type != "cuda":
        return median(_seconds(call) for _ in range(times))
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(times + 1)]
    torch.cuda.synchronize(device)
    marks[0].record()
    for mark in marks[1:]:
        call()
        mark.record()
    torch.cuda.synchronize(device)
    pairs = zip(marks, marks[1:], strict=False)
    return median(begin.elapsed_time(end) / 1000 for begin, end in pairs)


def _seconds(call: Callable[[], Tensor | None]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began
