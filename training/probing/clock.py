"""How long a call takes: on a GPU by its own events, on a processor by the CPU time it uses.

CPU time, since a laptop, a container or a busy machine gives a process less than its cores' whole
time, and what a training costs is what it uses. It is that of all threads of the process, over
their number: what a call takes where each thread has a core.
"""

import time
from collections.abc import Callable
from statistics import median

import torch

from training.health import measure

SECONDS = 0.02
"""A block of calls that is measured at once takes so long, about."""

BLOCKS = 5


def seconds(device: torch.device, call: Callable[[], object]) -> float:
    """Of one call, the median of some blocks of calls, after some that warm up."""
    if device.type == "cuda":
        return measure.timed(device, _without_result(call), BLOCKS * 4)
    used(call, 2)
    times = max(1, min(10_000, round(SECONDS / max(used(call, 1), 1e-7))))
    return median(used(call, times) / times for _ in range(BLOCKS))


def used(call: Callable[[], object], times: int) -> float:
    """CPU seconds of so many calls, over the process's threads for computation."""
    began = time.process_time()
    for _ in range(times):
        call()
    return (time.process_time() - began) / torch.get_num_threads()


def _without_result(call: Callable[[], object]) -> Callable[[], None]:
    def called() -> None:
        call()

    return called
