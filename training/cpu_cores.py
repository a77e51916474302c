"""A rank's share of the machine's cores.

This is a separate module because evaluation and transform use it without the training loop.
"""

import os
from collections.abc import Mapping

from trainyard.common.process import count_cores

ON_THIS_MACHINE = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE")
"""Variables in which torchrun and Open MPI give the number of ranks on this machine."""


def count_cores_per_rank(environment: Mapping[str, str] = os.environ) -> int:
    """Return the number of cores for each rank of this machine; at least one."""
    ranks = next((int(environment[n]) for n in ON_THIS_MACHINE if n in environment), 1)
    return max(1, count_cores() // ranks)


def limit_torch_threads(environment: Mapping[str, str] = os.environ) -> None:
    """Limit torch's threads in this process to its share of the cores.

    A single rank under torchrun, and every rank under mpirun, starts with one thread per core of
    the machine, whatever a container's quota is. The limit that OMP_NUM_THREADS sets is never
    exceeded.
    """
    import torch  # imported here: the share needs no torch

    if (room := count_cores_per_rank(environment)) < torch.get_num_threads():
        torch.set_num_threads(room)
