"""Start a Ray cluster of the job's instances: the head on the first, the others join it.

Nothing of Ray listens beyond the instances' network: no dashboard, no client server, no usage
statistics; on one machine only at its loopback address. Whoever speaks to it must know the job's
ARN: Ray's token. Each instance has folders of its own for Ray's sockets and spilled objects.
"""

import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from steps.shard.instances import Instances, resolved
from trainyard.common.errors import DataError, TrainyardError
from trainyard.common.hashes import json_sha256
from trainyard.common.parent_death import die_with_parent

log = logging.getLogger(__name__)

ENDED = "TRAINYARD_SHARD_ENDED"
"""Variable with the file in which the head tells an instance how the job ended."""
JOB = "TRAINYARD_SHARD_JOB"
"""Variable with the arguments of the job on this instance, as JSON."""
STORE_BYTES = 2 * 10**9
"""Memory of an instance's object store, at most: what is exchanged at once takes less."""
LEAST_STORE = 80 * 10**6
"""Ray's own minimum."""
PATIENT = 10.0
"""Seconds that Ray's processes have to end."""
AGAIN = 2.0
"""Seconds between two tries to join the head."""
SHARED = Path("/dev/shm")  # noqa: S108 (Ray's object store, not a file of ours)


@contextmanager
def running_node(
    instances: Instances, words: Sequence[str], spill: Path, processes: int
) -> Iterator["Node"]:
    """Run this instance's part of the cluster; it ends with the block, and with this process."""
    home = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))  # noqa: S108 (a socket's path is short)
    node = Node(instances, words, home, spill, processes)
    try:
        yield node
    finally:
        node.stop()
        shutil.rmtree(home, ignore_errors=True)
        shutil.rmtree(spill, ignore_errors=True)


class Node:
    """Ray's processes on this instance."""

    def __init__(
        self, instances: Instances, words: Sequence[str], home: Path, spill: Path, processes: int
    ) -> None:
        self.instances = instances
        self.ended = home / "ended.json"
        """Written by the head: why the job has failed, or "" if it has not."""
        self._home, self._spill, self._processes = home, spill, processes
        self._process: subprocess.Popen | None = None
        checkout = str(Path(__file__).resolve().parents[2])
        path = os.environ.get("PYTHONPATH")
        self._environment = {
            "PYTHONPATH": f"{checkout}{os.pathsep}{path}" if path else checkout,
            JOB: json.dumps([*words]),
            ENDED: str(self.ended),
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": json_sha256([instances.job, *instances.hosts]),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_task_oom_retries": "2",  # its default is for ever
            "RAY_OBJECT_STORE_ALLOW_SLOW_STORAGE": "1",
        }
        os.environ |= self._environment

    def start(self, *, head: bool) -> None:
        """Start Ray's processes."""
        self._spill.mkdir(parents=True, exist_ok=True)
        place = self.instances.head
        port = place.rpartition(":")[2]
        first = ["--head", "--port", port, "--include-dashboard=false"]
        size, folder = store()
        command = [
            *(sys.executable, "-m", "steps.shard.ray_start", self.instances.address, "--block"),
            *(first if head else ["--address", numbered(place)]),
            *("--num-cpus", str(self._processes), "--num-gpus", "0"),
            *("--resources", json.dumps({self.instances.host: 1e6})),
            *("--object-store-memory", str(size), "--plasma-directory", str(folder or self._spill)),
            *("--object-spilling-directory", str(self._spill)),
            *("--temp-dir", str(self._home), "--disable-usage-stats"),
            *("--min-worker-port", "0", "--max-worker-port", "0"),
        ]
        with (self._home / "start.log").open("ab") as sink:
            self._process = subprocess.Popen(
                command, stdout=sink, stderr=sink, stdin=subprocess.DEVNULL,
                start_new_session=True, preexec_fn=die_with_parent,  # noqa: PLW1509
            )  # fmt: skip

    def alive(self) -> bool:
        """Return whether Ray runs here."""
        return self._process is not None and self._process.poll() is None

    @property
    def joined(self) -> bool:
        """Return whether Ray has started, and on other instances than the first joined it."""
        return self.alive() and "Ray runtime started" in self._log

    @property
    def last_words(self) -> str:
        """Return the end of what Ray's start wrote."""
        return " ".join(self._log.split())[-600:]

    @property
    def _log(self) -> str:
        with suppress(OSError):
            return (self._home / "start.log").read_text()
        return ""

    def stop(self) -> None:
        """End Ray's processes on this instance, those that it started included."""
        if self._process is None:
            return
        self._process.terminate()  # it ends what it has started; killed, a reaper of Ray's does
        try:
            self._process.wait(PATIENT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def follow(self, patience: float) -> None:
        """Join the head and do what it asks until the job has ended.

        Raises:
            DataError: the job has failed; says why.
            TrainyardError: there is no head, or it is gone.
        """
        head, start = self.instances.hosts[0], time.monotonic()
        joined = False
        while not self.ended.is_file():
            if not self.alive():
                self.stop()
                if joined or time.monotonic() - start > patience:
                    state = "is gone" if joined else f"did not answer for {patience:,.0f} s"
                    raise TrainyardError(
                        f"{head} ({self.instances.head}): the job's first instance {state}; see its"
                        f" log, and run the step again. Ray on {self.instances.host} says: "
                        f"{self.last_words}"
                    )
                log.info("joining %s", self.instances.head)
                self.start(head=False)
            joined = joined or self.joined
            time.sleep(AGAIN / 4 if self.alive() else AGAIN)
        if message := json.loads(self.ended.read_bytes()):
            raise DataError(message)


def numbered(place: str) -> str:
    """Return ``name:port`` with the name's address."""
    name, _, port = place.rpartition(":")
    return f"{resolved(name) or name}:{port}"


def store() -> tuple[int, Path | None]:
    """Return the bytes of the object store, and where it lies; None: beside the spilled objects, if
    the container's shared memory is small (docker gives 64 MB).
    """
    memory = min(STORE_BYTES, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 10)
    room = shutil.disk_usage(SHARED).free * 4 // 5 if SHARED.is_dir() else 0
    if room >= LEAST_STORE:
        return max(LEAST_STORE, min(memory, room)), SHARED
    log.warning("%s: has room for %.0f MB, so objects lie on the disk", SHARED, room / 1e6)
    return max(LEAST_STORE, memory), None
