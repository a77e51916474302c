"""A process of ours: it ends with its parent, knows its cores, and keeps its memory shared."""

import contextlib
import ctypes
import gc
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def die_with_parent() -> None:
    """End this process when its parent ends: an orphan would write what the next run writes, too.

    On Linux the kernel does this, even while a long call into C holds Python's lock.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    parent = multiprocessing.parent_process()
    if parent is not None:
        # The parent died while this process was starting.
        if not parent.is_alive():
            os._exit(1)
        threading.Thread(target=_end_after, args=(parent,), daemon=True).start()


def _end_after(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)


# The number of cores that a process may use.

QUOTA = Path("/sys/fs/cgroup/cpu.max")


def cores(quota: Path = QUOTA) -> int:
    """Return how many cores this process may use: its affinity, and a container's quota (cgroup
    v2).
    """
    known = hasattr(os, "sched_getaffinity")
    allowed = len(os.sched_getaffinity(0)) if known else os.cpu_count() or 1
    try:
        limit, period = quota.read_text().split()
    except (OSError, ValueError):
        # This controller is missing outside a container.
        return allowed
    return allowed if limit == "max" else max(1, min(allowed, int(limit) // int(period)))


# Exclude long-lived objects from garbage collection.
#
# torch with its compiler is some 300,000 objects. Scanning them while torch is imported, and again
# at the process's end, takes about a second of a processor: a quarter of a small training's.


@contextlib.contextmanager
def exclude_from_gc() -> Iterator[None]:
    """Exclude objects created in the block from garbage collection, now and later."""
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        gc.enable()
