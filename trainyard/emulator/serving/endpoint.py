"""One endpoint: its container in the runtime that jobs have, and the requests to it."""

import contextlib
import http.client
import logging
import shutil
import socket
import tarfile
import tempfile
import threading
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from trainyard.common.errors import EmulatorError
from trainyard.emulator.api import REGION, ApiError, make_arn
from trainyard.emulator.jobs.job import Place
from trainyard.emulator.jobs.transfers import ClientFault, split_uri
from trainyard.emulator.runtime.cluster import Cluster
from trainyard.emulator.runtime.isolation import choose
from trainyard.emulator.runtime.node import Node, base_environment
from trainyard.emulator.runtime.relocation import remove_scratch

STARTUP = 600.0  # seconds until /ping must answer
ANSWER = 60.0  # seconds that a container has for an answer (InvokeEndpoint's documentation)
GRACE = 1.0  # seconds from SIGTERM to SIGKILL
SOCKET = "serve.sock"
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Answer:
    """A container's answer to a request."""

    status: int
    body: bytes
    content_type: str


class Endpoint:
    """A container that serves one model. Every method may be called from any thread."""

    def __init__(self, place: Place, name: str, variant: str, container: dict) -> None:
        self.arn = make_arn("sagemaker", f"endpoint/{name.lower()}")
        self.status, self.failure = "Creating", ""
        self.created = self.modified = time.time()
        self._place, self._name, self._container = place, name, container
        self._directory = place.jobs.parent / "endpoints" / name
        self._node = Node("algo-1", self._directory / "algo-1", python=place.python)
        self.stream = f"{variant}/i-{uuid.uuid4().hex[:17]}"
        self._last = "it said nothing"
        self._stopping = threading.Event()
        self._cluster: Cluster | None = None
        self._short = Path(tempfile.mkdtemp(prefix="sm-"))
        """Leads to the socket by a path of less than the 108 bytes that one may have."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Returns at once; ``status`` becomes ``InService`` or ``Failed``."""
        self._thread.start()

    def stop(self) -> None:
        """Returns when no process of the container is left."""
        self._stopping.set()
        if self._cluster:
            self._cluster.stop(GRACE)
        self._thread.join()

    def invoke(self, body: bytes, headers: dict[str, str]) -> Answer:
        """``POST /invocations``. Raises :class:`ApiError` when no answer comes."""
        try:
            return self._ask("POST", "/invocations", body, headers)
        except (OSError, http.client.HTTPException) as error:
            message = f"the container of {self._name} did not answer: {error}"
            raise ApiError("ModelError", message, 424) from None

    def _run(self) -> None:
        try:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._stage()
            isolation = choose()
            isolation.prepare(self._node, [self._node.name])
            (self._short / "tmp").symlink_to((self._node.home / "tmp").resolve())
            self._cluster = Cluster(self._directory, [self._node], isolation, self._line)
            if self._stopping.is_set():
                return
            threading.Thread(target=self._wait_for_ping, daemon=True).start()
            self._cluster.run(None, GRACE)
            self._become("Failed", f"the container ended: {self._last}")
        except (ClientFault, ApiError, EmulatorError, OSError, tarfile.TarError) as error:
            log.warning("endpoint %s failed: %s", self._name, error)
            self._become("Failed", str(error))
        finally:
            remove_scratch(self._node)
            shutil.rmtree(self._directory, ignore_errors=True)
            shutil.rmtree(self._short, ignore_errors=True)

    def _stage(self) -> None:
        node = self._node
        node.make_directories("/opt/ml/model")
        descriptor = self._place.objects.open(*split_uri(self._container["ModelDataUrl"]))[1]
        with open(descriptor, "rb") as file, tarfile.open(fileobj=file) as tar:
            tar.extractall(node.inside("/opt/ml/model"), filter="data")
        node.environment = base_environment(REGION, 1, node.python)
        node.environment |= self._container.get("Environment", {})
        node.environment["SAGEMAKER_BASE_DIR"] = "/opt/ml"
        serve = str(Path(__file__).with_name("serve.py"))
        start = f'exec "$0" {serve!r} "$TMPDIR/{SOCKET}"'  # TMPDIR is the isolation's to say
        node.command = ["/bin/sh", "-c", start, str(node.python)]

    def _wait_for_ping(self) -> None:
        end = time.monotonic() + STARTUP
        while self.status == "Creating" and not self._stopping.is_set():
            with contextlib.suppress(OSError, http.client.HTTPException):
                if self._ask("GET", "/ping", b"", {}).status == 200:
                    return self._become("InService")
            if time.monotonic() > end and self._cluster:
                self._cluster.stop(GRACE)
                return
            time.sleep(0.05)

    def _ask(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        connection = _Connection(str(self._short / "tmp" / SOCKET))
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            content_type = response.headers.get("Content-Type", "")
            return Answer(response.status, response.read(), content_type)
        finally:
            connection.close()

    def _become(self, status: str, failure: str = "") -> None:
        if not self._stopping.is_set():
            self.failure, self.modified = failure[:1024], time.time()
            self.status = status

    def _line(self, host: str, line: str) -> None:
        self._last = line.strip() or self._last
        group = f"/aws/sagemaker/Endpoints/{self._name}"
        self._place.logs.append(group, self.stream, (line,))


class _Connection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=ANSWER)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
