"""``trainyard emulator`` as a user starts it."""

import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.trainyard.emulator.harness import until
from tests.trainyard.emulator.standin import make_client, sign_headers
from trainyard.emulator.server import Endpoint

pytestmark = pytest.mark.long

ASK = "import boto3; print(boto3.client('sts').get_caller_identity()['Account'])"


@pytest.fixture
def start(started: Callable) -> Callable:
    """Starts ``trainyard emulator`` with these arguments."""
    return partial(started, "emulator")


def read_exports(process: subprocess.Popen) -> dict[str, str]:
    values = {}
    for line in iter(process.stdout.readline, ""):
        if line.startswith("export "):
            name, _, value = line.removeprefix("export ").strip().partition("=")
            values[name] = value
        if line.startswith("export PYTHONPATH"):  # the last one
            return values
    raise AssertionError(process.stderr.read())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_prints_what_a_shell_needs_and_stops_cleanly(start: Callable, tmp_path: Path, number: int):
    process = start(AWS_SESSION_TOKEN="real", AWS_PROFILE="real")
    values = read_exports(process)
    answer = subprocess.run(
        [sys.executable, "-c", ASK], env=values, capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "123456789012"
    assert (tmp_path / ".trainyard/aws/s3/index.sqlite").exists()
    process.send_signal(number)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (0, "")
    assert values["AWS_ENDPOINT_URL"] in err and "Traceback" not in err


@pytest.mark.sweep
def test_refuses_in_one_line(start: Callable):
    first = start("--state", "here")
    port = read_exports(first)["AWS_ENDPOINT_URL"].rpartition(":")[2]
    for arguments, said in [
        (("--state", "here"), "in use by another emulator"),
        (("--state", "there", "--port", port), f"127.0.0.1:{port}: Address already in use"),
        (("--python", "no-such-python"), "--python no-such-python: expected a Python interp"),
    ]:
        process = start(*arguments)
        out, err = process.communicate(timeout=120)
        assert process.returncode == 1
        assert out == "" and said in err
        assert len(err.strip().splitlines()) == 1, err


def test_killed_in_the_middle_of_an_upload_it_starts_again_with_the_old_object(
    start: Callable, tmp_path: Path
):
    process = start("--state", "aws")
    values = read_exports(process)
    there = Endpoint(values["AWS_ENDPOINT_URL"], values, None)
    s3 = make_client(there, "s3")
    s3.create_bucket(Bucket="bucket")
    s3.put_object(Bucket="bucket", Key="key", Body=b"old")
    host, port = values["AWS_ENDPOINT_URL"].removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        headers = sign_headers(there, "s3", "PUT", "/bucket/key", {"Content-Length": "9000000"})
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        connection.sendall(f"PUT /bucket/key HTTP/1.1\r\n{lines}\r\n".encode())
        connection.sendall(b"n" * 4_000_000)
        bytes_of = tmp_path / "aws/s3/data"
        until(lambda: sum(p.stat().st_size for p in bytes_of.glob("*/*")) >= 1_000_000)
        process.kill()
        process.wait()
    values = read_exports(start("--state", "aws"))
    s3 = make_client(Endpoint(values["AWS_ENDPOINT_URL"], values, None), "s3")
    assert s3.get_object(Bucket="bucket", Key="key")["Body"].read() == b"old"
    assert [p.stat().st_size for p in bytes_of.glob("*/*")] == [3]
