"""Start the processes that benchmarks measure: ranks, and an emulator."""

import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.harness import CHECKOUT


def find_free_ports(count: int) -> list[int]:
    """Return TCP ports of 127.0.0.1 that are free."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    found = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return found


def make_rank_env(rank: int, world: int, port: int) -> dict[str, str]:
    """Return the variables that torchrun gives a rank, with gloo on loopback and one thread."""
    return {
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "GROUP_RANK": "0",
        "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world),
    }


@contextmanager
def run_emulator(state: Path) -> Iterator[tuple[subprocess.Popen, dict[str, str]]]:
    """Run ``trainyard emulator``; yield its process and the variables for its clients."""
    command = [sys.executable, "-m", "trainyard", "emulator", "--state", str(state)]
    own, out = {**os.environ, "COLUMNS": "500"}, subprocess.PIPE
    process = subprocess.Popen(
        command, cwd=CHECKOUT, env=own, stdout=out, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None  # it was asked for
    try:
        variables = {}
        for line in process.stdout:
            if line.startswith("export "):
                [_, pair] = shlex.split(line)
                name, _, variables[name] = pair.partition("=")
            elif line.startswith("emulator on "):
                break
        else:
            raise RuntimeError(f"the emulator ended with {process.wait()}")
        threading.Thread(target=list, args=(process.stdout,), daemon=True).start()  # no pipe fills
        yield process, variables
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


def create_boto_client(environment: Mapping[str, str], service: str, **config: Any) -> Any:
    """Return a boto client of the AWS that the variables lead to; it does not retry."""
    import botocore.session  # not in the ranks that import this module
    from botocore.config import Config

    return botocore.session.Session().create_client(
        service,
        region_name=environment["AWS_REGION"],
        endpoint_url=environment["AWS_ENDPOINT_URL"],
        aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
        config=Config(retries={"total_max_attempts": 1}, **config),
    )
