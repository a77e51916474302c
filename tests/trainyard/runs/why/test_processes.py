"""What is said of processes that really fail: whose line to mend, and what is not certain."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import clean_environment
from trainyard.runs.why.diagnosis import Cause, diagnose_failure
from trainyard.runs.why.logged_exceptions import parse_evidence


def diagnose_failed_command(*command: str | Path) -> Cause:
    """The diagnosis of what the command, which fails, writes to stderr."""
    environment = clean_environment() | {"NO_PROXY": "*", "PIP_CONFIG_FILE": os.devnull}
    done = subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
        check=False,
    )
    assert done.returncode != 0
    return diagnose_failure(parse_evidence(done.stderr))


CALLERS = {
    "Cython": ("import pandas\npandas.to_datetime('no date')\n", 2),
    # the caller stands in the second traceback of the chain alone
    "chain": ("import pandas\n\npandas.DataFrame({'a': [1]})['b']\n", 3),
    "C": ("import numpy\nnumpy.ones(2) @ numpy.ones(3)\n", 2),
}


@pytest.mark.parametrize("name", CALLERS)
def test_the_line_to_mend_is_the_callers_and_no_packages(name: str, tmp_path: Path):
    code, number = CALLERS[name]
    (script := tmp_path / "train.py").write_text(code)
    assert diagnose_failed_command(script).fix == f"mend train.py:{number}, or what it was given"


@pytest.fixture
def port() -> Iterator[int]:
    """Yield the port of a server that closes each connection on the first bytes that it gets."""
    server = socket.create_server(("127.0.0.1", 0))

    def close() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:  # the server was closed
                return
            with connection:
                connection.recv(65536)
                connection.shutdown(socket.SHUT_WR)

    thread = threading.Thread(target=close, daemon=True)
    thread.start()
    yield server.getsockname()[1]
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join(timeout=10)


def test_pip_without_a_network_is_not_told_to_correct_the_version(port: int):
    index = ("--index-url", f"http://127.0.0.1:{port}/simple", "--retries", "1", "--timeout", "2")
    cause = diagnose_failed_command("-m", "pip", "--isolated", "install", *index, "datasets==2.1")
    assert cause.certainty == "likely" and "PIP_INDEX_URL" in cause.fix
    assert "version, or" not in cause.fix and "did not reach an index" in cause.sentence
