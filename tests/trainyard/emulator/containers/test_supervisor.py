"""Processes that get SIGTERM from the first process of a job."""

import subprocess
import sys

import pytest

from trainyard.emulator.containers.supervisor import handles_sigterm

WAITING = "import signal, sys; {}; print('ready', flush=True); sys.stdin.read()"


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("signal.signal(signal.SIGTERM, lambda *_: None)", True),
        ("signal.signal(signal.SIGTERM, signal.SIG_IGN)", False),
        ("signal.signal(signal.SIGINT, lambda *_: None)", False),
    ],
)
def test_a_process_that_asks_for_sigterm_is_known(line: str, expected: bool):
    process = subprocess.Popen(
        [sys.executable, "-c", WAITING.format(line)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    assert handles_sigterm(process.pid) == expected
    process.communicate("")
    assert not handles_sigterm(process.pid)
