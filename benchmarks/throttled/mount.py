"""Mount a folder as a file system that is as slow as one says, for the time of a measurement.

The server is the emulator's (``trainyard.emulator.runtime.mounted_folders``), in a process of its
own; it ends, and unmounts, when whoever started it ends. Needs ``/dev/fuse`` and root.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import typer

from benchmarks.harness import CHECKOUT
from trainyard.emulator.runtime.mounted_folders import (
    DETACH,
    DEVICE,
    LIBC,
    Server,
    Slow,
    mounted_device,
)

FORCE = 1  # MNT_FORCE


def refuse(device: Path = Path(DEVICE), user: int | None = None) -> None:
    """Say what is missing for a mount, and what to do about it.

    Raises:
        typer.BadParameter: there is no ``/dev/fuse``, or this process is not root's.
    """
    if not device.exists():
        raise typer.BadParameter(
            f"{device}: is missing, and a slow file system is mounted by it; load the kernel's "
            f"module (modprobe fuse), or give it to the container (docker run --device {device} "
            "--cap-add SYS_ADMIN)"
        )
    if (os.geteuid() if user is None else user) != 0:
        raise typer.BadParameter(
            "only root may mount a file system; run it by sudo, or as root in a container "
            "(docker run --device /dev/fuse --cap-add SYS_ADMIN)"
        )


@contextmanager
def mounted(folder: Path, at: Path, slow: Slow) -> Iterator[dict[str, int]]:
    """Inside, ``at`` (an empty folder) has the files of ``folder``, and is as slow as told.

    What was asked of it stands in the dict afterwards: ``opened``, ``jumps``, ``read`` (bytes).

    Raises:
        OSError: it cannot be mounted; says why.
    """
    told: dict[str, int] = {}
    command = [sys.executable, "-m", "benchmarks.throttled.mount"]
    command += [str(folder), str(at), json.dumps(asdict(slow))]
    # In a session of its own Ctrl-C does not reach it: it ends when its input does, whatever
    # ended this process.
    server = subprocess.Popen(
        command, cwd=CHECKOUT, text=True, start_new_session=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert server.stdin is not None and server.stdout is not None
    try:
        if server.stdout.readline() != "mounted\n":
            raise OSError(f"{at}: cannot be mounted: {server.communicate()[1].strip()}")
        yield told
    finally:
        try:
            out, _ = server.communicate(timeout=60)
            told.update(json.loads(out or "{}"))
        finally:
            server.kill()
            server.wait()
            LIBC.umount2(bytes(at), DETACH)  # refused when the process has done it


def _serve(folder: Path, at: Path, slow: Slow) -> Server:
    """Mount, say so, and answer until the input ends."""
    try:
        server = Server(str(folder), slow, mounted_device(str(at)))
    except OSError as error:
        raise SystemExit(str(error.strerror)) from None
    try:
        thread = threading.Thread(target=server.run, name="slow", daemon=True)
        thread.start()
        print("mounted", flush=True)
        sys.stdin.read()
    finally:
        # By force: a request that nobody answers any more fails, and does not hang its reader.
        LIBC.umount2(bytes(at), FORCE | DETACH)
    thread.join(30)
    return server


if __name__ == "__main__":
    served = _serve(Path(sys.argv[1]), Path(sys.argv[2]), Slow(**json.loads(sys.argv[3])))
    print(json.dumps(asdict(served.counts)), flush=True)
