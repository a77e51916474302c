"""What one rank measures; all ranks do so at the same time, as they share cores and memory."""

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from training.devices import peak_memory
from training.probing import pages
from training.probing.clock import seconds

ROWS = {"cpu": (64, 512, 4096), "cuda": (1024, 4096, 16384)}
"""Tokens of a product."""

WIDTHS = {"cpu": (64, 256, 1024), "cuda": (1024, 4096, 8192)}
"""Inner width and columns of a product."""

SIZES = {"cpu": (2**10, 2**14, 2**17, 2**20, 2**22, 2**24), "cuda": (2**16, 2**22, 2**26, 2**30)}
"""Bytes of a tensor that is added to another one."""

HEADS = {"cpu": ((64, 16), (256, 32), (256, 128)), "cuda": ((2048, 128), (8192, 128))}
"""Sequence and width of a head, of attention over eight heads."""

MESSAGES = {"cpu": (2**10, 2**18, 2**22, 2**24), "cuda": (2**12, 2**20, 2**26, 2**30)}
"""Bytes of a collective's whole tensor."""

WEIGHTS = {"cpu": 2**20, "cuda": 2**26}
"""Of an optimizer's step."""

CHAIN = 64
"""Calls in a row, to tell what one costs when nothing has to be computed."""

TYPES = (torch.float32, torch.bfloat16)


def measured(device: torch.device) -> dict[str, Any]:
    """All that a rank measures; seconds of a call, by what it is given.

    On a processor these are CPU seconds over the threads (``clock``). Collectives are there where
    the process is in a group of several ranks.
    """
    base = peak_memory(device) * 1e6
    found = {
        "base_bytes": base,
        "matmul": [*_matmul(device)],
        "attention": [*_attention(device)],
        "moved": [*_moved(device)],
        "optimizer": _optimizer(device),
        "call": _calls(device),
    }
    if device.type == "cpu":
        found["page_seconds"] = pages.seconds()
    if dist.is_initialized() and dist.get_world_size() > 1:
        found["collective"] = [*_collectives(device)]
    return found


def _matmul(device: torch.device) -> Iterator[dict[str, Any]]:
    """A linear layer's product, and both of its backward pass: their mean."""
    kind = device.type
    for dtype in TYPES:
        for rows, inner, columns in product(ROWS[kind], WIDTHS[kind], WIDTHS[kind]):
            x, weight, y = (
                torch.randn(shape, device=device).to(dtype)
                for shape in ((rows, inner), (columns, inner), (rows, columns))
            )
            calls = (lambda: x @ weight.T, lambda: y @ weight, lambda: y.T @ x)  # noqa: B023
            mean = sum(seconds(device, call) for call in calls) / len(calls)
            yield _row(dtype, mean, rows=rows, inner=inner, columns=columns)


def _attention(device: torch.device) -> Iterator[dict[str, Any]]:
    """Causal attention, forward and backward."""
    for dtype in TYPES:
        for length, width in HEADS[device.type]:
            parts = [torch.randn(2, 8, length, width, device=device).to(dtype) for _ in range(3)]
            q, k, v = (one.requires_grad_() for one in parts)

            def both() -> None:
                F.scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward()  # noqa: B023

            flops = 3.5 * 4 * 2 * 8 * length**2 * width
            row = _row(dtype, seconds(device, both), length=length, width=width)
            yield row | {"flops": flops}


def _moved(device: torch.device) -> Iterator[dict[str, Any]]:
    """One tensor added to another: three times its bytes are read and written."""
    for size in SIZES[device.type]:
        a, b = (torch.randn(size // 4, device=device) for _ in range(2))
        took = seconds(device, lambda: a + b)  # noqa: B023
        yield {"bytes": 3 * size, "seconds": took}


def _optimizer(device: torch.device) -> dict[str, float]:
    """A fused AdamW's step over float32 weights."""
    count = WEIGHTS[device.type]
    weight = nn.Parameter(torch.zeros(count, device=device))
    weight.grad = torch.zeros_like(weight)
    optimizer = torch.optim.AdamW([weight], fused=True)
    return {"weights": count, "seconds": seconds(device, optimizer.step)}


def _calls(device: torch.device) -> dict[str, float]:
    """What torch takes for a call on almost nothing: forward, and backward for it."""
    one = torch.ones(1, device=device)
    weight = torch.ones(1, device=device, requires_grad=True)

    def forward() -> None:
        with torch.no_grad():
            _chain(one, one)

    def both() -> None:
        _chain(one, weight).backward()

    alone, trained = seconds(device, forward) / CHAIN, seconds(device, both) / CHAIN
    return {"forward_seconds": alone, "trained_seconds": trained}


def _chain(x: Tensor, weight: Tensor) -> Tensor:
    for _ in range(CHAIN):
        x = x * weight
    return x


def _collectives(device: torch.device) -> Iterator[dict[str, Any]]:
    """Seconds of a rank: on a processor those that it computes, and not those that it waits."""
    for dtype, size in product(TYPES, MESSAGES[device.type]):
        whole = torch.zeros(size // dtype.itemsize, device=device, dtype=dtype)
        for kind, call in _exchanges(whole).items():
            dist.barrier()
            yield {"kind": kind} | _row(dtype, _together(device, call), bytes=size)


def _exchanges(whole: Tensor) -> dict[str, Callable[[], object]]:
    part = whole.new_zeros(len(whole) // dist.get_world_size())
    return {
        "all_reduce": lambda: dist.all_reduce(whole),
        "all_gather": lambda: dist.all_gather_into_tensor(whole, part),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole),
        "send": lambda: _around(whole),
    }


def _around(whole: Tensor) -> None:
    """To the next rank, while the one before sends as much."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    sent = dist.isend(whole, (rank + 1) % ranks)
    dist.recv(torch.empty_like(whole), (rank - 1) % ranks)
    sent.wait()


def _together(device: torch.device, call: Callable[[], object]) -> float:
    """As ``seconds``; every rank makes as many calls."""
    from training.probing import clock

    if device.type == "cuda":
        return seconds(device, call)
    clock.used(call, 2)
    return min(clock.used(call, 8) / 8 for _ in range(clock.BLOCKS))


def _row(dtype: torch.dtype, took: float, **sizes: int) -> dict[str, Any]:
    return {"dtype": str(dtype).removeprefix("torch."), **sizes, "seconds": took}
