"""What each call of an operator that a training makes costs when it is made alone.

Sizes, strides and types are the training's: how fast an element goes by depends on how long the
rows are that lie together, and not on their number alone.
"""

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

import torch

from training.probing import clock
from training.simulation import arguments

SECONDS = 0.004
"""A block of calls takes so long, about."""

BLOCKS = 3
MOST = 400
"""Calls of a block."""

KEPT = {-4: 0, -1: 2**31 - 1}
"""glibc's mallopt (malloc.h): M_MMAP_MAX, M_TRIM_THRESHOLD. What is freed stays with the process,
so that a call's own fresh pages are not in its price (``pages`` counts a step's)."""


def ready() -> None:
    """Make this process one that prices: of one thread, which keeps the memory that it has had."""
    torch.set_num_threads(1)
    libc = ctypes.CDLL(None)
    for option, value in KEPT.items():
        libc.mallopt(option, value)


def priced(calls: Sequence[tuple[str, str]]) -> list[float]:
    """CPU seconds of each call, by ``Operation.name`` and ``Operation.given``.

    Raises:
        RuntimeError: one cannot be made alone; with its name and arguments.
    """
    import torch.distributed.fsdp  # noqa: F401  registers the operators that it calls

    with torch.no_grad():
        return [_priced(*one) for one in calls]


def _priced(name: str, given: str) -> float:
    try:
        call = _call(name, given)
        clock.used(call, 1)  # warms up
    except (AttributeError, RuntimeError, TypeError, ValueError, IndexError) as error:
        raise RuntimeError(f"{name} cannot be made alone with {given}: {error}") from error
    times = max(1, min(MOST, round(SECONDS / max(clock.used(call, 1), 1e-7))))
    return min(clock.used(call, times) / times for _ in range(BLOCKS))


def _call(name: str, given: str) -> Callable[[], Any]:
    space, _, rest = name.partition("::")
    packet, _, overload = rest.partition(".")
    operator = attrgetter(f"{space}.{packet}.{overload or 'default'}")(torch.ops)
    args, kwargs = arguments.made(given)
    return partial(operator, *args, **kwargs)
