"""The number of cores that a process may use."""

import os
from pathlib import Path

QUOTA = Path("/sys/fs/cgroup/cpu.max")


def cores(quota: Path = QUOTA) -> int:
    """Return how many cores this process may use: its affinity, and a container's quota (cgroup
    v2).
    """
    known = hasattr(os, "sched_getaffinity")
    allowed = len(os.sched_getaffinity(0)) if known else os.cpu_count() or 1
    try:
        limit, period = quota.read_text().split()
    except (OSError, ValueError):  # this controller is missing outside a container
        return allowed
    return allowed if limit == "max" else max(1, min(allowed, int(limit) // int(period)))
