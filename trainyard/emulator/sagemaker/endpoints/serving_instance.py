"""An instance that serves a model: it runs the model's containers and sends requests to them."""

import contextlib
import http.client
import logging
import os
import shutil
import socket
import tarfile
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from trainyard.common.errors import EmulatorError
from trainyard.common.safe_unpack import unpack_tar
from trainyard.emulator.client_environment import Access, grant_access
from trainyard.emulator.containers.cluster import Cluster, Outcome
from trainyard.emulator.containers.containers import open_container_network
from trainyard.emulator.containers.install_layer import remove_temporary_folder
from trainyard.emulator.containers.isolation import Isolation, choose_isolation
from trainyard.emulator.containers.node import Node, build_base_environment, list_host_names
from trainyard.emulator.iam.authority import restrict_objects
from trainyard.emulator.request_scope import ApiError, Thread, read_region
from trainyard.emulator.sagemaker.endpoints.model_containers import (
    FOLDER,
    OWN_SERVER,
    TARGET,
    Container,
    ModelTable,
)
from trainyard.emulator.sagemaker.jobs.failure_reason import (
    explain_start_failure,
    format_version_notice,
    read_imports,
    select_excerpt,
)
from trainyard.emulator.sagemaker.jobs.job import TAIL, JobServices
from trainyard.emulator.sagemaker.jobs.transfers import (
    ClientFault,
    download_objects,
    select_objects,
    split_uri,
)

STARTUP = 600.0  # maximum time until /ping responds, in seconds
ANSWER = 60.0  # maximum time until a container responds, in seconds (InvokeEndpoint's docs)
GRACE = 1.0  # seconds from SIGTERM to SIGKILL
LONGEST_PAUSE = 60.0  # maximum seconds before a container that keeps exiting is restarted
CALM = 60.0  # seconds of serving after which the count of successive exits is reset
LAST_WORDS = 2.0  # seconds to wait for the log of a container that closed a connection
SOCKET = "serve.sock"
PORT = 8080  # on which an image's own server listens (developer guide, hosting)
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Answer:
    """A container's response to a request."""

    status: int
    body: bytes
    content_type: str
    attributes: str = ""
    """X-Amzn-SageMaker-Custom-Attributes."""

    @property
    def is_error(self) -> bool:
        """Whether InvokeEndpoint responds with a ModelError. Status 0 means that there was no
        response.
        """
        return not self.status or self.status >= 400


TIMED_OUT = Answer(
    0,
    b"Your invocation timed out while waiting for a response from container primary. Review the "
    b"latency metrics for each container in Amazon CloudWatch, resolve the issue, and try again.",
    "text/plain",
)
"""What the service responds if a container does not respond in time."""


BROKE_OFF = Answer(0, b"the connection to the container broke off", "text/plain")
"""Response to a request whose container exits before it has responded."""


class NoAnswerError(OSError):
    """A container did not respond. ``answer`` is what AWS responds in that case."""

    def __init__(self, answer: Answer, reason: str) -> None:
        super().__init__(reason)
        self.answer = answer


class Instance:
    """The containers of one model. Requests pass through them in order (serial inference).

    Its methods are thread-safe. ``on_line(container, text)`` is called with each line of their
    logs. ``grant`` is a context manager that gives them access to AWS while they run. ``status`` is
    ``Starting``, ``Ready`` or ``Failed``; ``failure`` has the reason. Containers that end after
    they were Ready are started again, as an image's server and SageMaker do, and requests wait
    until they are Ready again.
    """

    def __init__(
        self,
        services: JobServices,
        directory: Path,
        containers: Sequence[Container],
        on_line: Callable[[str, str], None],
        grant: AbstractContextManager[Access | None],
        environment: dict[str, str] | None = None,
    ) -> None:
        self.status, self.failure = "Starting", ""
        self._job_services, self._directory, self._containers = (
            services,
            directory,
            list(containers),
        )
        hosts = list_host_names(len(self._containers))
        self._nodes = [Node(host, directory / host, python=services.python) for host in hosts]
        self._line, self._grant, self._environment = on_line, grant, environment or {}
        self._tails = {host: deque[str](maxlen=TAIL) for host in hosts}
        self._ping_failure = self._last_words = ""
        self._decision_event = threading.Event()
        self._serving, self._end_event = threading.Event(), threading.Event()
        self._stopping = threading.Event()
        self._cluster: Cluster | None = None
        self._models: ModelTable | None = None
        if self._containers[0].has_models:
            folder, prefix = self._nodes[0].to_host_path(FOLDER), self._containers[0].data
            self._models = ModelTable(self.send_request, folder, prefix, self._unpack)
        self._thread = Thread(target=self._run, name=directory.name, daemon=True)

    def start(self) -> None:
        """Start the containers in the background. Use :meth:`wait` to wait until the instance is
        Ready, Failed or stopped.
        """
        self._thread.start()

    def wait(self) -> None:
        """Return when the instance is Ready, Failed or stopped."""
        self._decision_event.wait()

    def stop(self) -> None:
        """Stop the containers. Return when none of their processes is left."""
        self._stopping.set()
        # Wake the threads in ``wait`` and those that wait to send a request.
        self._decision_event.set()
        self._serving.set()
        if cluster := self._cluster:
            cluster.stop(GRACE)
        if self._thread.ident:
            self._thread.join()

    def invoke(self, body: bytes, headers: dict[str, str], seconds: float | None = None) -> Answer:
        """Send ``POST /invocations``. Each container gets the response of the previous one.

        Raises :class:`NoAnswerError`, and ``ValidationError`` if the request does not select a
        model as it must.
        """
        seconds = ANSWER if seconds is None else seconds
        if self._models:
            return self._models.invoke(body, headers, seconds)
        if TARGET in headers:
            message = "is not a multi-model endpoint and does not support target model header."
            raise ApiError(
                "ValidationError", f"Endpoint {self._directory.parents[1].name} {message}"
            )
        answer = self.send_request("POST", "/invocations", body, headers, seconds)
        for number in range(1, len(self._nodes)):
            if answer.is_error:
                break
            request_headers = headers | {"Content-Type": answer.content_type}
            answer = self._send_when_serving(
                number, "POST", "/invocations", answer.body, request_headers, seconds
            )
        return answer

    def send_request(
        self, method: str, path: str, body: bytes, headers: dict[str, str], seconds: float = ANSWER
    ) -> Answer:
        """Send a request to the first container. Raises :class:`NoAnswerError`."""
        return self._send_when_serving(0, method, path, body, headers, seconds)

    def _send_when_serving(
        self,
        number: int,
        method: str,
        path: str,
        body: bytes,
        headers: dict[str, str],
        seconds: float,
    ) -> Answer:
        """Send a request to container number ``number``, counted from 0, once the instance serves.
        Raises :class:`NoAnswerError`.
        """
        timeout_message = f"there was no answer within {seconds:g} s"
        if not self._serving.wait(seconds):
            raise NoAnswerError(TIMED_OUT, timeout_message)
        try:
            return self._send_to_node(self._nodes[number], method, path, body, headers, seconds)
        except TimeoutError:
            raise NoAnswerError(TIMED_OUT, timeout_message) from None
        except (OSError, http.client.HTTPException) as error:
            self._end_event.wait(LAST_WORDS)
            raise NoAnswerError(BROKE_OFF, self._last_words or str(error)) from None

    # life cycle

    def _run(self) -> None:
        """Serve until the instance is stopped or has failed, then delete its folders. Runs in a
        thread.
        """
        try:
            shutil.rmtree(self._directory, ignore_errors=True)
            with self._grant as access:
                self._serve_in_isolation(access)
        except (ClientFault, ApiError, EmulatorError, OSError, tarfile.TarError) as error:
            log.warning("%s failed: %s", self._directory, error)
            self._set_status("Failed", getattr(error, "message", "") or str(error))
        finally:
            for node in self._nodes:
                remove_temporary_folder(node)
            shutil.rmtree(self._directory, ignore_errors=True)
            self._decision_event.set()
            self._serving.set()  # requests that wait fail at once, because nothing is listening

    def _serve_in_isolation(self, access: Access | None) -> None:
        """Call :meth:`_serve`, in a container network if a container engine runs the images."""
        if self._containers[0].server is not OWN_SERVER:
            self._serve(access, choose_isolation())
            return
        internet = self._job_services.aws.internet
        with open_container_network(self._directory, access, internet=internet) as isolation:
            self._serve(access, isolation)

    def _serve(self, access: Access | None, isolation: Isolation) -> None:
        """Prepare the nodes, then run the containers, and restart them until the instance is
        stopped.
        """
        hosts = [node.name for node in self._nodes]
        for node, container in zip(self._nodes, self._containers, strict=True):
            node.image = container.image if container.server is OWN_SERVER else ""
            python = None if node.image else node.python
            node.environment = build_base_environment(read_region(), 1, python, isolation.interface)
            if access:
                node.environment |= access.build_environment(isolation)
            self._stage(node, container)
            isolation.prepare(node, hosts)
        route = access.route if access else None
        ends = 0
        while not self._stopping.is_set():
            cluster = self._cluster = Cluster(
                self._directory, self._nodes, isolation, self._record_line, route
            )
            # ``stop`` before this line has set the event; a later one finds ``_cluster``.
            if self._stopping.is_set():
                return
            threading.Thread(target=self._wait_for_ping, args=(cluster,), daemon=True).start()
            began = time.monotonic()
            outcome, self._cluster = cluster.run(None, GRACE), None
            unstarted = outcome.failure is not None and not outcome.failure.started
            describe = explain_start_failure if unstarted else select_excerpt
            last_lines = self._ping_failure or describe(hosts[0], self._tails) or "its log is empty"
            self._last_words = f"the container ended: {last_lines}"
            if self.status != "Ready":
                return self._set_status("Failed", self._last_words)
            self._serving.clear()
            if self._models:
                self._models.mark_unloaded()
            self._end_event.set()
            ends = 1 if time.monotonic() - began > CALM else ends + 1
            self._wait_before_restart(outcome, ends)

    def _wait_before_restart(self, outcome: Outcome, ends: int) -> None:
        """Log how the containers ended, and wait before the restart. ``ends`` is how many times in
        a row they have ended: the wait is 0 s after the first, 1 s after the second, and then
        doubles up to LONGEST_PAUSE.
        """
        if self._stopping.is_set():
            return
        pause = min(LONGEST_PAUSE, 2.0 ** (ends - 2)) if ends > 1 else 0.0
        status = outcome.failure.status if outcome.failure else 0
        how = f"signal {-status}" if status < 0 else f"exit status {status}"
        when = f"in {pause:g} s" if pause else "at once"
        text = f"The model's container ended with {how} (consecutive exit {ends}): restarting it"
        self._line(self._nodes[0].name, f"[emulator] {text} {when}.")
        log.warning("%s: %s %s", self._directory, text, when)
        for node in self._nodes:
            (node.tmp / SOCKET).unlink(missing_ok=True)
        self._ping_failure = ""
        self._stopping.wait(pause)

    def _stage(self, node: Node, container: Container) -> None:
        """Put the model and the user's code into the node's folders; set its command and
        environment.
        """
        node.make_directories(FOLDER if container.has_models else "/opt/ml/model")
        if container.has_models:
            node.environment["SAGEMAKER_MULTI_MODEL"] = "true"
        elif container.data:
            self._unpack(container.data, node.to_host_path("/opt/ml/model"))
        node.environment |= container.environment | self._environment
        if node.image:
            node.own_entrypoint, node.command = True, ["serve"]
            return
        node.environment["SAGEMAKER_BASE_DIR"] = "/opt/ml"
        node.environment["TRAINYARD_IMAGE"] = container.image  # some formats depend on its version
        if (code := container.environment.get("SAGEMAKER_SUBMIT_DIRECTORY", "")).startswith("s3:"):
            node.make_directories("/opt/ml/code")  # where AWS's containers unpack it
            self._unpack(code, node.to_host_path("/opt/ml/code"))
        if notice := format_version_notice(
            node.python, container.image, _list_imports(node, container)
        ):
            self._line(node.name, f"[emulator] {notice}")
        start = f'exec "$0" {str(container.server.path)!r} "${{TMPDIR:-/tmp}}/{SOCKET}"'
        node.command = ["/bin/sh", "-c", start, str(node.python)]

    def _unpack(self, uri: str, target: Path) -> None:
        """Download and unpack a model.tar.gz, or download everything below an uncompressed model's
        prefix.
        """
        if uri.endswith("/"):
            download_objects(
                self._job_services.objects,
                select_objects(self._job_services.objects, uri, "S3Prefix", ""),
                target,
            )
            return
        with (
            self._job_services.objects.open(*split_uri(uri))[1] as stored_bytes,
            tarfile.open(fileobj=stored_bytes) as tar,
        ):
            unpack_tar(tar, target)

    def _wait_for_ping(self, cluster: Cluster) -> None:
        """Set the status Ready when /ping of every container responds. Stop the containers if that
        takes more than STARTUP seconds.
        """
        end, silent_nodes = time.monotonic() + STARTUP, list(self._nodes)
        while self._cluster is cluster and not self._stopping.is_set():
            with contextlib.suppress(OSError, http.client.HTTPException):
                while (
                    silent_nodes
                    and self._send_to_node(silent_nodes[0], "GET", "/ping", b"", {}, 2).status
                    == 200
                ):
                    silent_nodes.pop(0)
            if not silent_nodes:
                self._end_event.clear()
                self._serving.set()
                return self._set_status("Ready")
            if time.monotonic() > end:
                self._ping_failure = f"/ping did not answer within {STARTUP:g} s"
                return cluster.stop(GRACE)
            time.sleep(0.05)

    def _send_to_node(
        self,
        node: Node,
        method: str,
        path: str,
        body: bytes,
        headers: dict[str, str],
        seconds: float,
    ) -> Answer:
        """Send a request to a node's container and return the response. Raises OSError or
        HTTPException.
        """
        connection = (
            http.client.HTTPConnection(node.address, PORT, timeout=seconds)
            if node.address
            else _Connection(node.tmp / SOCKET, seconds)
        )
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            content_type = response.headers.get("Content-Type", "")
            attributes = response.headers.get("X-Amzn-SageMaker-Custom-Attributes", "")
            return Answer(response.status, response.read(), content_type, attributes)
        finally:
            connection.close()

    def _set_status(self, status: str, failure: str = "") -> None:
        """Set status and failure unless the instance is being stopped, and wake :meth:`wait`."""
        if not self._stopping.is_set():
            self.failure, self.status = failure[:1024], status
            self._decision_event.set()

    def _record_line(self, host: str, line: str) -> None:
        """Keep a line of a container's log for failure reasons, and pass it on to ``on_line``."""
        self._tails[host].append(line)
        self._line(host, line)


def _list_imports(node: Node, container: Container) -> set[str]:
    """Return the modules that the container's server and the user's script in the model import."""
    name = container.environment.get("SAGEMAKER_PROGRAM") or "inference.py"
    modules = set(container.server.modules)
    for folder in map(node.to_host_path, ("/opt/ml/code", "/opt/ml/model/code")):
        if (folder / name).is_file():
            modules |= read_imports(folder / name, folder)
    return modules


class _Connection(http.client.HTTPConnection):
    """HTTP over a Unix socket that a container has created."""

    def __init__(self, path: Path, seconds: float) -> None:
        super().__init__("localhost", timeout=seconds)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        with _shorten_socket_path(self._path) as address:
            self.sock.connect(address)


@contextlib.contextmanager
def _shorten_socket_path(path: Path) -> Iterator[str]:
    """Yield a short path of the socket at ``path``, because the path of a socket must have less
    than 108 bytes.

    A symbolic link at ``path`` is never followed: a container could have put one there.
    """
    if not hasattr(os, "O_PATH"):  # not Linux: temporary folders have short paths there
        yield str(path.resolve())
        return
    descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW)
    try:
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


# A fleet: all processes that serve one endpoint configuration, one for each variant.


class WeightedRoundRobin:
    """Smooth weighted round robin: at any time the count of every name is within one request of its
    share.

    AWS instead draws at random with the same weights.
    """

    def __init__(self) -> None:
        self._credit: dict[str, float] = {}

    def choose_name(self, weights: Mapping[str, float]) -> str:
        """Return a name, in proportion to its weight. A name with weight 0 is never returned.

        Raises:
            ValueError: no weight is above 0.
        """
        positive_weights = {name: weight for name, weight in weights.items() if weight > 0}
        if not positive_weights:
            raise ValueError("no weight is above 0")
        total = sum(positive_weights.values())
        self._credit = {
            name: self._credit.get(name, 0.0) + weight / total
            for name, weight in positive_weights.items()
        }
        choice = max(self._credit, key=lambda name: self._credit[name])
        self._credit[choice] -= 1.0
        return choice


class Variant:
    """A production variant. One process replaces all its instances."""

    def __init__(self, job_services: JobServices, endpoint: str, folder: Path, spec: dict) -> None:
        self.spec, self.name = spec, spec["VariantName"]
        self.weight = float(spec.get("InitialVariantWeight", 1.0))
        self.count = int(spec.get("InitialInstanceCount", 1))
        model = job_services.models.describe(spec["ModelName"])
        self.containers = job_services.models.list_containers(spec["ModelName"])
        self._logs, self._group = job_services.logs, f"/aws/sagemaker/Endpoints/{endpoint}"
        self._stream = f"{self.name}/i-{uuid.uuid4().hex[:17]}"
        is_isolated = bool(model.get("EnableNetworkIsolation"))
        role = model.get("ExecutionRoleArn", "")
        grant = grant_access(job_services.aws, role, is_isolated)
        job_services = replace(
            job_services, objects=restrict_objects(job_services.aws.authority, role)
        )
        self.instance = Instance(
            job_services, folder / self.name, self.containers, self._write_line, grant
        )
        self.start_time = time.time()

    def start(self) -> None:
        if self.count > 1:
            self._write_line("", f"[emulator] One process replaces {self.count} instances.")
        self.instance.start()

    def describe(self) -> dict:
        """Return the ProductionVariantSummary."""
        images = [
            {
                "SpecifiedImage": container.image,
                "ResolvedImage": container.resolved_image,
                "ResolutionTime": self.start_time,
            }
            for container in self.containers
        ]
        return {
            "VariantName": self.name,
            "DeployedImages": images,
            "CurrentWeight": self.weight,
            "DesiredWeight": self.weight,
            "CurrentInstanceCount": self.count,
            "DesiredInstanceCount": self.count,
        }

    def _write_line(self, host: str, line: str) -> None:
        """Write a line of a container's log to CloudWatch Logs, unless it is empty."""
        stream = self._stream if len(self.containers) == 1 else f"{self._stream}/{host}"
        if line:  # CloudWatch Logs refuses an empty message
            self._logs.append(self._group, stream, (line,))


class Fleet:
    """The variants of an endpoint configuration. Its methods are thread-safe."""

    def __init__(self, services: JobServices, endpoint: str, config: dict) -> None:
        """Create the fleet. ``config`` is the response of DescribeEndpointConfig."""
        self.config = config
        self._folder = services.jobs.parent / "endpoints" / endpoint / uuid.uuid4().hex[:8]
        specs = config["ProductionVariants"]
        variants = [Variant(services, endpoint, self._folder, spec) for spec in specs]
        self.variants = {variant.name: variant for variant in variants}
        self._turns, self._lock, self._busy = WeightedRoundRobin(), threading.Condition(), 0

    @property
    def name(self) -> str:
        return self.config["EndpointConfigName"]

    @property
    def failure(self) -> str:
        """The reasons why variants have failed. Empty if none has."""
        failures = [v for v in self.variants.values() if v.instance.status == "Failed"]
        return "; ".join(f"variant {v.name}: {v.instance.failure}" for v in failures)

    def start(self) -> None:
        for variant in self.variants.values():
            variant.start()

    def wait(self) -> None:
        """Return when each variant is ready or has failed."""
        for variant in self.variants.values():
            variant.instance.wait()

    @contextmanager
    def acquire_variant(self, target: str | None) -> Iterator[Variant]:
        """Yield the variant named ``target``, or the next in turn if it is None. :meth:`drain`
        waits until the context is left.
        """
        with self._lock:
            variant = self._choose_variant(target)
            self._busy += 1
        try:
            yield variant
        finally:
            with self._lock:
                self._busy -= 1
                self._lock.notify_all()

    def drain(self) -> None:
        """Return when no request is running, or after ANSWER seconds. The caller must prevent new
        requests.
        """
        with self._lock:
            # A request takes at most ANSWER seconds.
            self._lock.wait_for(lambda: not self._busy, ANSWER)

    def stop(self) -> None:
        """Stop the fleet. Return when none of its processes is left."""
        for variant in self.variants.values():
            variant.instance.stop()
        shutil.rmtree(self._folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # another fleet of the endpoint uses the folder
            self._folder.parent.rmdir()

    def _choose_variant(self, target: str | None) -> Variant:
        """Return the variant named ``target``, or the next in turn if it is None. Raises
        ``ValidationError`` if it does not exist.
        """
        if target is None:
            weights = {variant.name: variant.weight for variant in self.variants.values()}
            return self.variants[self._turns.choose_name(weights)]
        if target not in self.variants:
            names = ", ".join(self.variants)
            message = f"Variant {target!r} is not one of this endpoint's: {names}"
            raise ApiError("ValidationError", message)
        return self.variants[target]
