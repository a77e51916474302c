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
from trainyard.runs.why.diagnosis import Cause, diagnose
from trainyard.runs.why.evidence import of_text


def failed(*command: str | Path) -> Cause:
    """The diagnosis of what the command, which fails, writes to stderr."""
    environment = clean_environment() | {"NO_PROXY": "*", "PIP_CONFIG_FILE": os.devnull}
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=120, env=environment
    )
    assert done.returncode != 0
    return diagnose(of_text(done.stderr))


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
    assert failed(script).fix == f"mend train.py:{number}, or what it was given"


def test_a_packages_command_has_no_line_to_mend(tmp_path: Path):
    (command := tmp_path / "torchrun").write_text(
        "import sys\nfrom pandas import to_datetime as main\n"
        "if __name__ == '__main__':\n    sys.exit(main('no date'))\n"
    )
    cause = failed(command)
    assert "DateParseError" in cause.sentence and cause.fix == ""


OUT_OF_MEMORY = """
import torch

def full(*_):
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 79 GiB")

model = torch.nn.Linear(1, 1)
{hook}(full)
{call}
"""


@pytest.mark.parametrize(
    ("hook", "call", "is_batch"),
    [
        ("model.register_state_dict_pre_hook", "model.state_dict()", False),
        ("model.register_load_state_dict_pre_hook", "model.load_state_dict({})", False),
        ("model.register_forward_hook", "model(torch.ones(1))", True),
    ],
    ids=["save", "load", "forward"],
)
def test_a_smaller_batch_is_no_advice_where_a_state_filled_the_memory(
    hook: str, call: str, is_batch: bool, tmp_path: Path
):
    (script := tmp_path / "train.py").write_text(OUT_OF_MEMORY.format(hook=hook, call=call))
    cause = failed(script)
    assert "A GPU's memory was full" in cause.sentence and "2.00 GiB more" in cause.sentence
    assert ("micro-batch" in cause.fix) == is_batch
    assert ("sharded" in cause.fix) != is_batch


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


def test_a_connection_that_the_other_side_broke_off_is_not_certainly_a_vpcs(port: int):
    for call in ("urllib.request.urlopen({!r})", "requests.get({!r})"):
        package = call.partition(".")[0] + (".request" if "urllib" in call else "")
        code = f"import {package}; {call.format(f'https://127.0.0.1:{port}/')}"
        cause = failed("-c", code)
        assert (cause.name, cause.certainty) == ("program/tls", "likely"), cause


def test_pip_without_a_network_is_not_told_to_correct_the_version(port: int):
    index = ("--index-url", f"http://127.0.0.1:{port}/simple", "--retries", "1", "--timeout", "2")
    cause = failed("-m", "pip", "--isolated", "install", *index, "datasets==2.1")
    assert cause.certainty == "likely" and "PIP_INDEX_URL" in cause.fix
    assert "version, or" not in cause.fix and "did not reach an index" in cause.sentence


@pytest.mark.parametrize(
    "text",
    [
        "CannotPullContainerError: Error response from daemon: pull access denied: Your "
        "authorization token has expired. Reauthenticate and try again.",
        "ClientError: Failed to pull image 111122223333.dkr.ecr.us-east-1.amazonaws.com/x:1: "
        "denied: Your Authorization Token has expired. Please run 'aws ecr get-login'",
    ],
)
def test_an_expired_login_is_not_blamed_on_image_and_role(text: str):
    """In the words of docker, which no process here can be made to say."""
    cause = diagnose(of_text(text))
    assert (cause.name, cause.certainty) == ("aws/login", "likely")
    assert "aws ecr get-login-password" in cause.fix and "BatchGetImage" not in cause.fix
