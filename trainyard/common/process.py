"""Helpers for processes: end with the parent, count usable cores, exclude objects from the GC."""

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
    """Make this process end when its parent ends.

    Otherwise an orphan could write the same files as the next run. On Linux the kernel ends the
    process, even while a long call into C holds Python's lock.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    parent = multiprocessing.parent_process()
    if parent is not None:
        # The parent may have died while this process was starting.
        if not parent.is_alive():
            os._exit(1)
        threading.Thread(target=_exit_after_parent, args=(parent,), daemon=True).start()


def _exit_after_parent(parent: BaseProcess) -> None:
    """End this process after the parent has ended."""
    parent.join()
    os._exit(1)


# The number of cores that a process may use.

QUOTA = Path("/sys/fs/cgroup/cpu.max")


def count_cores(quota: Path = QUOTA) -> int:
    """Return how many cores this process may use.

    The number is limited by its CPU affinity and by a container's quota (cgroup v2).
    """
    known = hasattr(os, "sched_getaffinity")
    allowed = len(os.sched_getaffinity(0)) if known else os.cpu_count() or 1
    try:
        limit, period = quota.read_text().split()
    except (OSError, ValueError):
        # Outside of a container, this file does not exist.
        return allowed
    return allowed if limit == "max" else max(1, min(allowed, int(limit) // int(period)))


# Exclude long-lived objects from garbage collection.
#
# torch with its compiler has some 300,000 objects. Scanning them while torch is imported, and again
# when the process ends, takes about one second of CPU time: a quarter of that of a small training
# run.


@contextlib.contextmanager
def exclude_from_gc() -> Iterator[None]:
    """Exclude all objects that exist at the end of the block from garbage collection, permanently.

    There is also no garbage collection during the block.
    """
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        gc.enable()
