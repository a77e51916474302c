"""Verbs of ``trainyard`` as a user starts them."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import CHECKOUT


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen]]:
    """Starts a verb with these arguments; ends what still runs at the end of the test."""
    processes = []

    def start(*arguments: str, **environment: str) -> subprocess.Popen:
        process = subprocess.Popen(
            [sys.executable, "-m", "trainyard", *arguments],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(CHECKOUT)} | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()
