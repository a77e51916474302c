"""Start a Ray cluster of the job's instances: the head on the first, the others join it.

Nothing of Ray listens beyond the instances' network: no dashboard, no client server, no usage
statistics; on one machine only at its loopback address. Whoever speaks to it must know the job's
ARN: Ray's token. Each instance has folders of its own for Ray's sockets and spilled objects.

Ray's own Node is what ``ray start`` runs, which would start the server of the dashboard, a client
server, two monitors and one more interpreter: half of the CPU of a small job. It is private, so
pyproject.toml pins Ray's version.
"""

import json
import logging
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any

from steps import job_main
from trainyard.common.errors import DataError, TrainyardError
from trainyard.common.hashes import json_sha256

# The instances of the job: their names, and where the first of them listens to the others.

log = logging.getLogger(__name__)

PORTS = range(10_000, 30_000)
"""Ports that a head listens at, below those that the system gives to anyone."""
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Instances:
    """This instance among those of the job."""

    host: str
    hosts: Sequence[str]
    """Names of all instances, sorted; the first is the head of their Ray cluster."""
    head: str = LOOPBACK
    """Name of the head, or the loopback address if nobody knows the names."""
    port: int = 0
    """Where the head listens."""
    job: str = ""
    """The job's ARN, which no other job has."""

    @property
    def address(self) -> str:
        """Return this instance's own address."""
        if self.head == LOOPBACK:
            return LOOPBACK
        return resolve_address(self.host) or LOOPBACK


def read(root: Path) -> Instances:
    """Read SageMaker's resourceconfig.json; without it (outside SageMaker) there is one instance.

    The instances are processes of one machine if nobody knows their names; so the head's port
    differs by job.
    """
    path, about = root / "config/resourceconfig.json", root / "config/processingjobconfig.json"
    if not path.is_file():
        log.info("%s: is missing, so this is the only instance", path)
        return Instances("algo-1", ["algo-1"])
    content = json.loads(path.read_bytes())
    host, hosts = content["current_host"], sorted(content["hosts"])
    job = json.loads(about.read_bytes())["ProcessingJobArn"] if about.is_file() else ""
    port = PORTS[int(json_sha256(job)[:8], 16) % len(PORTS)]
    address = resolve_address(host)
    # Debian gives its own name 127.0.1.1, which the others cannot reach.
    has_network = address is not None and not address.startswith("127.")
    return Instances(host, hosts, hosts[0] if has_network else LOOPBACK, port, job)


def resolve_address(host: str) -> str | None:
    """Return the address of a name; None if nobody knows it."""
    try:
        return socket.gethostbyname(host)
    except OSError:
        return None


ENDED = "TRAINYARD_SHARD_ENDED"
"""Variable with the file in which the head tells an instance how the job ended."""
JOB = "TRAINYARD_SHARD_JOB"
"""Variable with the arguments of the job on this instance, as JSON."""
STORE_BYTES = 2 * 10**9
"""Memory of an instance's object store, at most: what is exchanged at once takes less."""
LEAST_STORE = 80 * 10**6
"""Ray's own minimum."""
STARTING = 60
"""Seconds in which Ray's processes have to start."""
GRACE = 20
"""Seconds between the death of a process of Ray and the end of this one."""
LOOK_SECONDS = 0.5
"""Seconds between two looks."""
SHARED = Path("/dev/shm")  # noqa: S108 (Ray's object store, not a file of ours)


@contextmanager
def running_node(
    instances: Instances, words: Sequence[str], spill: Path, processes: int, message: Path
) -> Iterator["Node"]:
    """Run this instance's part of the cluster; it ends with the block, and with this process."""
    home = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))  # noqa: S108 (a socket's path is short)
    node = Node(instances, words, home, spill, processes, message)
    try:
        yield node
    finally:
        node.stop()
        shutil.rmtree(home, ignore_errors=True)
        shutil.rmtree(spill, ignore_errors=True)


class Node:
    """Ray's processes on this instance, which the kernel ends with this one."""

    def __init__(
        self, instances: Instances, words: Sequence[str], home: Path, spill: Path, processes: int,
        message: Path,
    ) -> None:  # fmt: skip
        self.instances, self._message = instances, message
        self.ended = home / "ended.json"
        """Written by the head: why the job has failed, or "" if it has not."""
        self._home, self._spill, self._processes = home, spill, processes
        self._node: Any = None
        self._stopped = Event()
        checkout = str(Path(__file__).resolve().parents[2])
        path = os.environ.get("PYTHONPATH")
        # Before Ray is imported, which reads it.
        os.environ |= {
            "PYTHONPATH": f"{checkout}{os.pathsep}{path}" if path else checkout,
            JOB: json.dumps([*words]),
            ENDED: str(self.ended),
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": json_sha256([instances.job, *instances.hosts]),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_task_oom_retries": "2",  # its default is for ever
            "RAY_OBJECT_STORE_ALLOW_SLOW_STORAGE": "1",
        }

    def start(self, *, head: bool) -> None:
        """Start Ray's processes.

        Raises:
            TrainyardError: they do not start, or the head does not answer.
        """
        from ray._private import node, parameter

        class NodeWithoutDashboard(node.Node):
            """Without the server of the dashboard, which nothing here asks."""

            def start_api_server(self, **_: Any) -> None:
                pass

        self._spill.mkdir(parents=True, exist_ok=True)
        address = self.instances.address
        keep_loopback(address)
        size, folder = store()
        options = parameter.RayParams(
            gcs_server_port=self.instances.port if head else None,
            gcs_address=None if head else self.head,
            node_ip_address=address, node_name=self.instances.host,
            num_cpus=self._processes, num_gpus=0, resources={self.instances.host: 1e6},
            object_store_memory=size, plasma_directory=str(folder or self._spill),
            object_spilling_directory=str(self._spill), temp_dir=str(self._home),
            min_worker_port=0, max_worker_port=0,
            include_dashboard=False, include_log_monitor="", no_monitor=True,
        )  # fmt: skip
        # The guard comes before the node, whose start may wait for ever, too.
        Thread(target=self._end_without_ray, daemon=True).start()
        try:
            self._node = NodeWithoutDashboard(
                options, head=head, shutdown_at_exit=False, spawn_reaper=True
            )
        except Exception as error:  # noqa: BLE001 (what Node raises, bare ones included)
            raise TrainyardError(f"{self.head}: Ray does not start: {error}") from None

    def _end_without_ray(self) -> None:
        """End this process some time after one of Ray's has died here, or if Ray does not start:
        calls into it may wait for ever.
        """
        start = time.monotonic()
        while self.alive() or (self._node is None and time.monotonic() - start < STARTING):
            if self._stopped.wait(LOOK_SECONDS):
                return
        what = "has died here" if self._node else f"was not there after {STARTING} s"
        # The main thread most often meets the death as well, and its error says more.
        if self._stopped.wait(GRACE if self._node else 0):
            return
        job_main.report(
            TrainyardError(
                f"{self.instances.host}: a process of Ray {what}; SIGKILL most often means out of "
                "memory: take an instance type with more; or see the first instance's log, and run "
                "the step again"
            ),
            self._message,
        )
        # sys.exit would end this thread alone.
        os._exit(1)

    @property
    def head(self) -> str:
        """Return ``address:port`` of the head."""
        address = resolve_address(self.instances.head) or self.instances.head
        return f"{address}:{self.instances.port}"

    def alive(self) -> bool:
        """Return whether Ray runs here."""
        return self._node is not None and not self._node.dead_processes()

    def stop(self) -> None:
        """End Ray's processes on this instance."""
        self._stopped.set()
        if self._node is not None:
            import psutil  # comes with Ray

            # Ray gives its raylet one second; on a busy machine its agents then live on without it.
            children = []
            for _, process in self._node.live_processes():
                with suppress(psutil.Error):
                    children += psutil.Process(process.pid).children(recursive=True)
            self._node.kill_all_processes(check_alive=False, allow_graceful=True, wait=True)
            for child in children:
                with suppress(psutil.Error):
                    child.kill()
        self._node = None

    def follow(self, patience: float) -> None:
        """Join the head and do what it asks until the job has ended.

        Raises:
            DataError: the job has failed; says why.
            TrainyardError: there is no head, or it is gone.
        """
        first, start = self.instances.hosts[0], time.monotonic()
        while not listens(self.head):
            if time.monotonic() - start > patience:
                raise TrainyardError(
                    f"{first} ({self.head}): the job's first instance did not answer for "
                    f"{patience:,.0f} s; see its log, and run the step again"
                )
            time.sleep(LOOK_SECONDS)
        log.info("joining %s", self.head)
        self.start(head=False)
        while not self.ended.is_file():
            # The file again: the head writes it, and only then ends Ray.
            if not self.alive() and not self.ended.is_file():
                raise TrainyardError(
                    f"{first} ({self.head}): the job's first instance is gone, or Ray has ended on "
                    f"{self.instances.host}; see both logs, and run the step again"
                )
            time.sleep(LOOK_SECONDS)
        if message := json.loads(self.ended.read_bytes()):
            raise DataError(message)


def keep_loopback(address: str) -> None:
    """Have Ray take a loopback address as it is: it would replace it by one that others reach."""
    if address.startswith(LOOPBACK):
        from ray._private import services

        services.get_node_ip_address = lambda address=None: LOOPBACK


def listens(place: str) -> bool:
    """Return whether somebody listens at ``address:port``."""
    address, _, port = place.rpartition(":")
    with suppress(OSError), socket.create_connection((address, int(port)), timeout=5):
        return True
    return False


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
