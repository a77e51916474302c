"""The real train job over toy data: in this process, or as several ranks."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from steps.train import job
from tests.training.trainings import CHECKOUT, TOYS, arguments, write_ragged


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    """Tiny models are slower on two threads, by far when something else runs beside the tests."""
    torch.set_num_threads(1)


@pytest.fixture
def root(tmp_path: Path, monkeypatch) -> Path:
    """A training container's folders with 100 + 20 toy samples."""
    monkeypatch.syspath_prepend(str(TOYS))
    write_ragged(tmp_path / "ml/input/data/train", 100, seed=1)
    write_ragged(tmp_path / "ml/input/data/validation", 20, seed=2)
    return tmp_path / "ml"


@pytest.fixture
def train() -> Callable[..., Path]:
    """Run the train job in this process, one rank: ``train(root, micro_batch=4)``."""

    def run(root: Path, **settings) -> Path:
        job.main(arguments(root, {"strategy": "single"} | settings))
        return root

    return run


@pytest.fixture
def ranks() -> Iterator[Callable[..., list[subprocess.Popen]]]:
    """Start the train job as ``world`` real processes over gloo, as torchrun would."""
    started: list[subprocess.Popen] = []

    def start(root: Path, world: int, **settings) -> list[subprocess.Popen]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [sys.executable, "steps/train/job.py", *arguments(root, settings)]
        for rank in range(world):
            environment = os.environ | {
                "PYTHONPATH": f"{CHECKOUT}:{TOYS}",
                "OMP_NUM_THREADS": "1",
                "GLOO_SOCKET_IFNAME": "lo",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(world),
            }
            started.append(
                subprocess.Popen(
                    command,
                    cwd=CHECKOUT,
                    env=environment,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
            )
        return started[-world:]

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()
