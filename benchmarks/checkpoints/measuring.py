"""What an act costs a process, and the processes that it started."""

import ctypes
import os
import time
from collections.abc import Callable
from pathlib import Path

import psutil

OWN = Path("/proc/self")


def measured(act: Callable[[], object], then: Callable[[], object] | None = None) -> dict:
    """What ``act`` costs, or from the beginning of ``act`` to the end of ``then``.

    Returns:
        ``seconds`` and ``cpu`` (seconds of a core) of all; ``stall``, ``stall_cpu``: of ``act``
        alone, in the thread that calls it; ``peak``: by how many bytes memory grew at most;
        ``read``: bytes that the kernel gave to read(2), whoever asked (rchar of proc(5): from the
        disk or the page cache; what recv(2) gives is not in it).
    """
    ctypes.CDLL(None).malloc_trim(0)  # else what others freed would hide what is taken now
    (OWN / "clear_refs").write_text("5")  # proc(5): resets the peak, VmHWM
    read, memory, cpu = _read(), _memory("VmRSS"), _cpu()
    began, thread = time.perf_counter(), time.thread_time()
    act()
    found = {"stall": time.perf_counter() - began, "stall_cpu": time.thread_time() - thread}
    if then is not None:
        then()
    found |= {"seconds": time.perf_counter() - began, "cpu": _cpu() - cpu}
    return found | {"peak": _memory("VmHWM") - memory, "read": _read() - read}


def _read() -> int:
    said = dict(line.split(": ") for line in (OWN / "io").read_text().splitlines())
    return int(said["rchar"])


def _memory(name: str) -> int:
    lines = (OWN / "status").read_text().splitlines()
    line = next(line for line in lines if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024


def _cpu() -> float:
    """Of this process, those that it started, and those of them that have ended."""
    times = os.times()
    living = [child.cpu_times() for child in psutil.Process().children(recursive=True)]
    ended = times.children_user + times.children_system
    return time.process_time() + ended + sum(one.user + one.system for one in living)
