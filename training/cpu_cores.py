"""A rank's share of the machine's cores, and how long it waits for them.

Apart: evaluation and transform read it without the loop.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from trainyard.common.process import cores

ON_THIS_MACHINE = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE")
"""Variables in which torchrun and Open MPI give the number of ranks on this machine."""
TASKS = Path("/proc/self/task")


def share_of_cores(environment: Mapping[str, str] = os.environ) -> int:
    """Return the number of cores for each rank of this machine, at least one."""
    ranks = next((int(environment[n]) for n in ON_THIS_MACHINE if n in environment), 1)
    return max(1, cores() // ranks)


def fit_threads(environment: Mapping[str, str] = os.environ) -> None:
    """Limit this process's threads to its share of the cores.

    A single rank under torchrun, and every rank under mpirun, starts with a thread per core of the
    machine, whatever a container's quota. What OMP_NUM_THREADS allows is never exceeded.
    """
    import torch  # imported here: counting waiting time needs no torch

    if (room := share_of_cores(environment)) < torch.get_num_threads():
        torch.set_num_threads(room)


@dataclass(frozen=True, slots=True)
class ThreadTimes:
    """Nanoseconds that each thread of this process has run and waited so far."""

    ran: Mapping[str, int]
    wait_ns: Mapping[str, int]
    """Nanoseconds ready to run while something else had the core."""

    @classmethod
    def now(cls, tasks: Path = TASKS) -> Self | None:
        """Read the kernel's counters; None if it does not keep them."""
        ran, wait_ns = {}, {}
        for path in tasks.glob("*/schedstat"):
            try:
                counters = path.read_text().split()
            except OSError:  # the thread has ended
                continue
            ran[path.parent.name], wait_ns[path.parent.name] = int(counters[0]), int(counters[1])
        return cls(ran, wait_ns) if ran else None

    def share_since(self, earlier: "ThreadTimes") -> float:
        """Return the share of time, 0 to 1, in which threads wanted a core and had none."""
        ran = sum(self.ran[name] - earlier.ran.get(name, 0) for name in self.ran)
        waiting = sum(self.wait_ns[name] - earlier.wait_ns.get(name, 0) for name in self.wait_ns)
        return waiting / (ran + waiting) if ran + waiting else 0.0
