"""The train job as two real ranks that find the fakes, started as torchrun or by mpirun."""

import os
import subprocess
import sys
from pathlib import Path

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
    """The same by Open MPI's mpirun, with AWS's MPI driver's options that are about the ranks."""
    options = ["--host", f"localhost:{RANKS}", "-np", str(RANKS), "--allow-run-as-root"]
    done = subprocess.run(
        [str(Path(sys.executable).parent / "mpirun"), *options, *_command(root, settings)],
        env=_environment() | {"SM_MASTER_ADDR": "127.0.0.1", "SM_MASTER_PORT": str(free_port())},
        timeout=120,
        **_pipes(),
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def _command(root: Path, settings: dict) -> list[str]:
    return [sys.executable, "-m", "tests.fakes.job", *arguments(root, settings)]


def _environment() -> dict[str, str]:
    return os.environ | {
        "PYTHONPATH": f"{CHECKOUT}:{TOYS}",
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }


def _pipes() -> dict:
    return {"cwd": CHECKOUT, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
