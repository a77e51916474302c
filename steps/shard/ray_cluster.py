"""Start a Ray cluster of the job's instances: the head on the first one, and the others join it.

Ray listens only on the instances' network, and on a single machine only at its loopback address.
There is no dashboard, no client server and there are no usage statistics. Ray's token is derived
from the job's ARN, so only the job's instances can connect. Each instance has its own folders for
Ray's sockets and spilled objects.

Ray's internal class Node is what ``ray start`` runs. That command would also start the dashboard's
server, a client server, two monitors and one more interpreter, which take half of the CPU of a
small job. The class is private, so pyproject.toml pins Ray's version.
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
from trainyard.common.hashes import hash_json

# The instances of the job: their names, and the address at which the first one listens.

log = logging.getLogger(__name__)

PORTS = range(10_000, 30_000)
"""Ports at which a head listens. They are below those that the system assigns to any process."""
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Instances:
    """This instance, and all instances of the job."""

    host: str
    hosts: Sequence[str]
    """Names of all instances, sorted. The first is the head of their Ray cluster."""
    head: str = LOOPBACK
    """Name of the head, or the loopback address if the names cannot be resolved."""
    port: int = 0
    """Port at which the head listens."""
    job: str = ""
    """The job's ARN, which is unique to it."""

    @property
    def address(self) -> str:
        """Return this instance's own address."""
        if self.head == LOOPBACK:
            return LOOPBACK
        return resolve_address(self.host) or LOOPBACK


def read_instances(root: Path) -> Instances:
    """Return the job's instances from resourceconfig.json; only this one if that file is missing.

    If the instances' names cannot be resolved, the instances are processes of one machine. So that
    several jobs can run there, the head's port depends on the job.
    """
    path, about = root / "config/resourceconfig.json", root / "config/processingjobconfig.json"
    if not path.is_file():
        log.info("%s: is missing, so this is the only instance", path)
        return Instances("algo-1", ["algo-1"])
    content = json.loads(path.read_bytes())
    host, hosts = content["current_host"], sorted(content["hosts"])
    job = json.loads(about.read_bytes())["ProcessingJobArn"] if about.is_file() else ""
    port = PORTS[int(hash_json(job)[:8], 16) % len(PORTS)]
    address = resolve_address(host)
    # Debian resolves its own host name to 127.0.1.1, which other machines cannot reach.
    has_network = address is not None and not address.startswith("127.")
    return Instances(host, hosts, hosts[0] if has_network else LOOPBACK, port, job)


def resolve_address(host: str) -> str | None:
    """Return the IP address of a host name, or None if it cannot be resolved."""
    try:
        return socket.gethostbyname(host)
    except OSError:
        return None


ENDED = "TRAINYARD_SHARD_ENDED"
"""Environment variable with the path of the file in which the head tells an instance how the job
ended."""
JOB = "TRAINYARD_SHARD_JOB"
"""Environment variable with the arguments of the job on this instance, as JSON."""
STORE_BYTES = 2 * 10**9
"""Maximum memory of an instance's object store. What is exchanged at the same time takes less."""
LEAST_STORE = 80 * 10**6
"""Minimum memory of an object store that Ray accepts."""
STARTING = 60
"""Seconds within which Ray's processes have to start."""
GRACE = 20
"""Seconds from the death of one of Ray's processes to the end of this process."""
LOOK_SECONDS = 0.5
"""Seconds between two checks of a state that is being waited for."""
SHARED = Path("/dev/shm")  # noqa: S108 (Ray's object store, not a file of ours)


@contextmanager
def open_node(
    instances: Instances, words: Sequence[str], spill: Path, processes: int, message: Path
) -> Iterator["Node"]:
    """Provide this instance's Ray node, which is not started yet; stop it at the end of the block.

    ``words``: the job's arguments. ``spill``: folder for objects that do not fit into memory.
    ``message``: file for the error message.
    """
    home = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))  # noqa: S108 (a socket's path is short)
    node = Node(instances, words, home, spill, processes, message)
    try:
        yield node
    finally:
        node.stop()
        shutil.rmtree(home, ignore_errors=True)
        shutil.rmtree(spill, ignore_errors=True)


class Node:
    """Ray's processes on this instance. They end when this process ends."""

    def __init__(
        self, instances: Instances, words: Sequence[str], home: Path, spill: Path, processes: int,
        message: Path,
    ) -> None:  # fmt: skip
        self.instances, self._message = instances, message
        self.ended = home / "ended.json"
        """File that the head writes when the job ends: why it failed, or "" if it succeeded."""
        self._home, self._spill, self._processes = home, spill, processes
        self._node: Any = None
        self._stopped = Event()
        checkout = str(Path(__file__).resolve().parents[2])
        path = os.environ.get("PYTHONPATH")
        # Ray reads these variables when it is imported, so they are set before.
        os.environ |= {
            "PYTHONPATH": f"{checkout}{os.pathsep}{path}" if path else checkout,
            JOB: json.dumps([*words]),
            ENDED: str(self.ended),
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": hash_json([instances.job, *instances.hosts]),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_task_oom_retries": "2",  # by default Ray retries forever
            "RAY_OBJECT_STORE_ALLOW_SLOW_STORAGE": "1",
        }

    def start(self, *, head: bool) -> None:
        """Start Ray's processes on this instance, as the head or as a node that joins it.

        Raises:
            TrainyardError: the processes do not start, or the head does not respond.
        """
        from ray._private import node, parameter

        class NodeWithoutDashboard(node.Node):
            """Node without the dashboard's server, which nothing here uses."""

            def start_api_server(self, **_: Any) -> None:
                pass

        self._spill.mkdir(parents=True, exist_ok=True)
        address = self.instances.address
        keep_loopback(address)
        size, folder = choose_object_store()
        options = parameter.RayParams(
            gcs_server_port=self.instances.port if head else None,
            gcs_address=None if head else self.head_address,
            node_ip_address=address, node_name=self.instances.host,
            num_cpus=self._processes, num_gpus=0, resources={self.instances.host: 1e6},
            object_store_memory=size, plasma_directory=str(folder or self._spill),
            object_spilling_directory=str(self._spill), temp_dir=str(self._home),
            min_worker_port=0, max_worker_port=0,
            include_dashboard=False, include_log_monitor="", no_monitor=True,
        )  # fmt: skip
        # Started before the node, because starting a node can also wait forever.
        Thread(target=self._end_without_ray, daemon=True).start()
        try:
            self._node = NodeWithoutDashboard(
                options, head=head, shutdown_at_exit=False, spawn_reaper=True
            )
        except Exception as error:  # noqa: BLE001 (Node raises many types, even plain Exception)
            raise TrainyardError(f"{self.head_address}: Ray does not start: {error}") from None

    def _end_without_ray(self) -> None:
        """End this process some time after one of Ray's processes has died, or if Ray does not
        start.

        This is needed because calls into Ray may then wait forever.
        """
        start = time.monotonic()
        while self.is_alive() or (self._node is None and time.monotonic() - start < STARTING):
            if self._stopped.wait(LOOK_SECONDS):
                return
        what = "has died here" if self._node else f"did not start within {STARTING} s"
        # The main thread usually detects the death too, and its error is more specific. So give it
        # time to end this process first.
        if self._stopped.wait(GRACE if self._node else 0):
            return
        job_main.report_failure(
            TrainyardError(
                f"{self.instances.host}: a process of Ray {what}; SIGKILL most often means out of "
                "memory: use an instance type with more memory; or see the first instance's log, "
                "and run "
                "the step again"
            ),
            self._message,
        )
        # sys.exit would end only this thread.
        os._exit(1)

    @property
    def head_address(self) -> str:
        """Return ``address:port`` of the head's Ray server."""
        address = resolve_address(self.instances.head) or self.instances.head
        return f"{address}:{self.instances.port}"

    def is_alive(self) -> bool:
        """Return whether all of Ray's processes on this instance are running."""
        return self._node is not None and not self._node.dead_processes()

    def stop(self) -> None:
        """End Ray's processes on this instance."""
        self._stopped.set()
        if self._node is not None:
            import psutil  # comes with Ray

            # Ray gives its raylet one second to stop. On a busy machine its agents would then
            # continue to run without it, so they are killed here.
            children = []
            for _, process in self._node.live_processes():
                with suppress(psutil.Error):
                    children += psutil.Process(process.pid).children(recursive=True)
            self._node.kill_all_processes(check_alive=False, allow_graceful=True, wait=True)
            for child in children:
                with suppress(psutil.Error):
                    child.kill()
        self._node = None

    def work_until_end(self, patience: float) -> None:
        """Join the head's cluster, and run Ray's processes until the job has ended.

        Raises:
            DataError: the job has failed; the message says why.
            TrainyardError: the head does not respond for ``patience`` seconds, or is gone.
        """
        first, start = self.instances.hosts[0], time.monotonic()
        while not is_listening(self.head_address):
            if time.monotonic() - start > patience:
                raise TrainyardError(
                    f"{first} ({self.head_address}): the job's first instance did not answer for "
                    f"{patience:,.0f} s; see its log, and run the step again"
                )
            time.sleep(LOOK_SECONDS)
        log.info("joining %s", self.head_address)
        self.start(head=False)
        while not self.ended.is_file():
            # Check the file again, because the head writes it just before it ends Ray.
            if not self.is_alive() and not self.ended.is_file():
                raise TrainyardError(
                    f"{first} ({self.head_address}): the job's first instance is gone, or Ray has "
                    f"ended on {self.instances.host}; see both logs, and run the step again"
                )
            time.sleep(LOOK_SECONDS)
        if message := json.loads(self.ended.read_bytes()):
            raise DataError(message)


def keep_loopback(address: str) -> None:
    """Prevent Ray from replacing a loopback address by one that other machines can reach."""
    if address.startswith(LOOPBACK):
        from ray._private import services

        services.get_node_ip_address = lambda address=None: LOOPBACK


def is_listening(address_port: str) -> bool:
    """Return whether a server is listening at ``address:port``."""
    address, _, port = address_port.rpartition(":")
    with suppress(OSError), socket.create_connection((address, int(port)), timeout=5):
        return True
    return False


def choose_object_store() -> tuple[int, Path | None]:
    """Return the size of the object store in bytes, and its folder in shared memory.

    The folder is None if the container's shared memory is too small (docker gives 64 MB). The
    store is then kept in the folder of the spilled objects.
    """
    memory = min(STORE_BYTES, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 10)
    room = shutil.disk_usage(SHARED).free * 4 // 5 if SHARED.is_dir() else 0
    if room >= LEAST_STORE:
        return max(LEAST_STORE, min(memory, room)), SHARED
    log.warning("%s: has room for %.0f MB, so objects are stored on the disk", SHARED, room / 1e6)
    return max(LEAST_STORE, memory), None
