"""An instance that serves a model: its containers in the runtime of jobs, and requests to them."""

import contextlib
import http.client
import logging
import os
import shutil
import socket
import tarfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from trainyard.common.errors import EmulatorError
from trainyard.common.safe_unpack import unpack
from trainyard.emulator.api import ApiError
from trainyard.emulator.container_access import Access
from trainyard.emulator.jobs.failure_reason import excerpt
from trainyard.emulator.jobs.job import TAIL, Place
from trainyard.emulator.jobs.transfers import ClientFault, download, select, split_uri
from trainyard.emulator.request_scope import Thread, region
from trainyard.emulator.runtime.cluster import Cluster
from trainyard.emulator.runtime.isolation import choose
from trainyard.emulator.runtime.node import Node, base_environment, host_names
from trainyard.emulator.runtime.relocation import remove_scratch
from trainyard.emulator.serving.model_containers import Container

STARTUP = 600.0  # longest wait for an answer of /ping, in seconds
ANSWER = 60.0  # longest wait for a container's answer, in seconds (InvokeEndpoint's docs)
GRACE = 1.0  # seconds from SIGTERM to SIGKILL
SOCKET = "serve.sock"
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Answer:
    """A container's answer to a request."""

    status: int
    body: bytes
    content_type: str
    attributes: str = ""
    """X-Amzn-SageMaker-Custom-Attributes."""

    cause: str = ""
    """The exception behind status 500, if the server's page does not contain it."""


class Instance:
    """The containers of one model, which requests pass in order: serial inference.

    Its methods are thread-safe. ``line(container, text)`` gets their logs; ``grant`` is their
    access to AWS while they run. ``status`` is ``Starting``, ``Ready`` or ``Failed``, with the
    reason in ``failure``.
    """

    def __init__(
        self,
        place: Place,
        directory: Path,
        containers: Sequence[Container],
        line: Callable[[str, str], None],
        grant: AbstractContextManager[Access | None],
        environment: dict[str, str] | None = None,
    ) -> None:
        self.status, self.failure = "Starting", ""
        self._place, self._directory, self._containers = place, directory, list(containers)
        hosts = host_names(len(self._containers))
        self._nodes = [Node(host, directory / host, python=place.python) for host in hosts]
        self._line, self._grant, self._environment = line, grant, environment or {}
        self._tails = {host: deque[str](maxlen=TAIL) for host in hosts}
        self._late = ""
        self._decided = threading.Event()
        self._stopping = threading.Event()
        self._cluster: Cluster | None = None
        self._thread = Thread(target=self._run, name=directory.name, daemon=True)

    def start(self) -> None:
        """Start the containers; return at once. :meth:`wait` waits until Ready, Failed or
        stopped.
        """
        self._thread.start()

    def wait(self) -> None:
        self._decided.wait()

    def stop(self) -> None:
        """Stop the containers; return when none of their processes is left."""
        self._stopping.set()
        self._decided.set()
        if self._cluster:
            self._cluster.stop(GRACE)
        if self._thread.ident:
            self._thread.join()

    def invoke(self, body: bytes, headers: dict[str, str], seconds: float = ANSWER) -> Answer:
        """Send ``POST /invocations``; each container gets the answer of the previous one.

        Raises :class:`OSError` or :class:`http.client.HTTPException` if there is no answer.
        """
        answer = self.ask("POST", "/invocations", body, headers, seconds)
        for node in self._nodes[1:]:
            if answer.status >= 400:
                break
            passed = headers | {"Content-Type": answer.content_type}
            answer = self._ask(node, "POST", "/invocations", answer.body, passed, seconds)
        return answer

    def ask(
        self, method: str, path: str, body: bytes, headers: dict[str, str], seconds: float = ANSWER
    ) -> Answer:
        """Return the first container's answer."""
        return self._ask(self._nodes[0], method, path, body, headers, seconds)

    # life

    def _run(self) -> None:
        try:
            shutil.rmtree(self._directory, ignore_errors=True)
            with self._grant as access:
                self._live(access)
        except (ClientFault, ApiError, EmulatorError, OSError, tarfile.TarError) as error:
            log.warning("%s failed: %s", self._directory, error)
            self._become("Failed", getattr(error, "message", "") or str(error))
        finally:
            for node in self._nodes:
                remove_scratch(node)
            shutil.rmtree(self._directory, ignore_errors=True)
            self._decided.set()

    def _live(self, access: Access | None) -> None:
        isolation, hosts = choose(), [node.name for node in self._nodes]
        for node, container in zip(self._nodes, self._containers, strict=True):
            node.environment = base_environment(region(), 1, node.python)
            if access:
                node.environment |= access.environment(isolation.loopback)
            self._stage(node, container)
            isolation.prepare(node, hosts)
        route = access.route if access else None
        self._cluster = Cluster(self._directory, self._nodes, isolation, self._hear, route)
        if self._stopping.is_set():
            return
        threading.Thread(target=self._wait_for_ping, daemon=True).start()
        self._cluster.run(None, GRACE)
        said = excerpt(hosts[0], self._tails) or "its log is empty"
        self._become("Failed", f"the container ended: {self._late or said}")

    def _stage(self, node: Node, container: Container) -> None:
        node.make_directories("/opt/ml/model")
        self._unpack(container.data, node.inside("/opt/ml/model"))
        node.environment |= container.environment | self._environment
        node.environment["SAGEMAKER_BASE_DIR"] = "/opt/ml"
        node.environment["TRAINYARD_IMAGE"] = container.image  # its version decides some formats
        if (code := container.environment.get("SAGEMAKER_SUBMIT_DIRECTORY", "")).startswith("s3:"):
            node.make_directories("/opt/ml/code")  # where AWS's containers unpack it
            self._unpack(code, node.inside("/opt/ml/code"))
        start = f'exec "$0" {str(container.server.path)!r} "${{TMPDIR:-/tmp}}/{SOCKET}"'
        node.command = ["/bin/sh", "-c", start, str(node.python)]

    def _unpack(self, uri: str, target: Path) -> None:
        """Download a model.tar.gz, or everything below an uncompressed model's prefix."""
        if uri.endswith("/"):
            download(self._place.objects, select(self._place.objects, uri, "S3Prefix", ""), target)
            return
        with (
            self._place.objects.open(*split_uri(uri))[1] as stored,
            tarfile.open(fileobj=stored) as tar,
        ):
            unpack(tar, target)

    def _wait_for_ping(self) -> None:
        end, waiting = time.monotonic() + STARTUP, list(self._nodes)
        while self.status == "Starting" and not self._stopping.is_set():
            with contextlib.suppress(OSError, http.client.HTTPException):
                while waiting and self._ask(waiting[0], "GET", "/ping", b"", {}, 2).status == 200:
                    waiting.pop(0)
            if not waiting:
                return self._become("Ready")
            if time.monotonic() > end and self._cluster:
                self._late = f"/ping did not answer within {STARTUP:g} s"
                return self._cluster.stop(GRACE)
            time.sleep(0.05)

    def _ask(
        self,
        node: Node,
        method: str,
        path: str,
        body: bytes,
        headers: dict[str, str],
        seconds: float,
    ) -> Answer:
        connection = _Connection(node.tmp / SOCKET, seconds)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            content_type = response.headers.get("Content-Type", "")
            attributes = response.headers.get("X-Amzn-SageMaker-Custom-Attributes", "")
            cause = unquote(response.headers.get("X-Trainyard-Cause", ""))
            return Answer(response.status, response.read(), content_type, attributes, cause)
        finally:
            connection.close()

    def _become(self, status: str, failure: str = "") -> None:
        if not self._stopping.is_set():
            self.failure, self.status = failure[:1024], status
            self._decided.set()

    def _hear(self, host: str, line: str) -> None:
        self._tails[host].append(line)
        self._line(host, line)


class _Connection(http.client.HTTPConnection):
    """HTTP over a Unix socket that a container made."""

    def __init__(self, path: Path, seconds: float) -> None:
        super().__init__("localhost", timeout=seconds)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        with _address(self._path) as address:
            self.sock.connect(address)


@contextlib.contextmanager
def _address(path: Path) -> Iterator[str]:
    """Yield a short path of the very socket at ``path``, never of another that a link there names:
    a socket's path has less than 108 bytes.
    """
    if not hasattr(os, "O_PATH"):  # no Linux: its temporary folders are short
        yield str(path.resolve())
        return
    descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW)
    try:
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
