"""The train job as two real ranks that find the fakes, started as torchrun or by mpirun."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import mock

from tests.fakes import install
from tests.training import worlds
from tests.training.trainings import CHECKOUT, TOYS, arguments

RANKS = 2


def torchrun(root: Path, **settings) -> str:
    """What rank 0 printed; every rank has to succeed."""
    worlds.train(root, RANKS, target=_rank, **settings)
    return (root / "rank-0.log").read_text()


def _rank(*arguments: Any) -> None:
    install()
    worlds.run_rank(*arguments)


def mpirun(root: Path, **settings) -> str:
    """The same by Open MPI's mpirun, with the command that AWS's MPI driver makes."""
    place = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
             "PYTHONPATH": f"{CHECKOUT}:{TOYS}", "OMP_NUM_THREADS": "1",
             "GLOO_SOCKET_IFNAME": "lo", "SM_MASTER_ADDR": "127.0.0.1", "SM_HOST_COUNT": "1",
             "SM_MASTER_PORT": str(worlds.free_port())}  # fmt: skip
    done = subprocess.run(
        [*_drivers_command(), *arguments(root, settings)], env=os.environ | place, cwd=CHECKOUT,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


def _drivers_command() -> list[str]:
    [package] = find_spec("sagemaker.train").submodule_search_locations
    sys.path.append(f"{package}/container_drivers")
    from distributed_drivers.mpi_utils import get_mpirun_command

    container = {"SM_CURRENT_INSTANCE_TYPE": "ml.m5.large", "SM_NETWORK_INTERFACE_NAME": "lo"}
    with mock.patch.dict(os.environ, container):
        return get_mpirun_command(
            host_count=1,
            host_list=[f"localhost:{RANKS}"],
            num_processes=RANKS,
            additional_options=["--map-by", f"ppr:{RANKS}:node"],  # steps/train/step.py adds it
            entry_script_path="tests/fakes/job.py",
        )
