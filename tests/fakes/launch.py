"""The train job as two real ranks that find the fakes, started as torchrun or by mpirun."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from unittest import mock

from tests.training.trainings import CHECKOUT, TOYS, arguments
from tests.training.worlds import free_port

RANKS = 2


def torchrun(root: Path, **settings) -> str:
    """What the ranks printed; every one of them has to succeed."""
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    processes = [
        subprocess.Popen(
            _command(root, settings),
            env=_environment() | meeting | {
                "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(RANKS)
            },
            **_pipes(),
        )
        for rank in range(RANKS)
    ]  # fmt: skip
    printed = [process.communicate(timeout=120)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * RANKS, "\n".join(printed)
    return "".join(printed)


def mpirun(root: Path, **settings) -> str:
    """The same by Open MPI's mpirun, with the command that AWS's MPI driver makes."""
    done = subprocess.run(
        [*_drivers_command(), *arguments(root, settings)],
        env=_environment() | {
            "SM_MASTER_ADDR": "127.0.0.1", "SM_MASTER_PORT": str(free_port()), "SM_HOST_COUNT": "1"
        },
        timeout=120,
        **_pipes(),
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


def _command(root: Path, settings: dict) -> list[str]:
    return [sys.executable, "-m", "tests.fakes.job", *arguments(root, settings)]


def _environment() -> dict[str, str]:
    binaries = str(Path(sys.executable).parent)
    return os.environ | {
        "PATH": f"{binaries}:{os.environ['PATH']}",
        "PYTHONPATH": f"{CHECKOUT}:{TOYS}",
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }


def _pipes() -> dict:
    return {"cwd": CHECKOUT, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
