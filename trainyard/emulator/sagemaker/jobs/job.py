"""A job: its record, its life cycle from Starting to its end, and its log, as all kinds share them.

<state>/jobs/<name>/job.json    the Describe... response, rewritten at each change of status
<state>/jobs/<name>/nodes.json  node -> process id of its main process on this machine
<state>/jobs/<name>/algo-1/...  a node's directories

When a job has ended, only job.json is kept. The rest is deleted, as an instance is.
"""

import contextlib
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar

from trainyard.common.atomic_file import REMEDIES, make_storage_error
from trainyard.common.errors import EmulatorError, StorageError
from trainyard.emulator.client_environment import Access, grant_access
from trainyard.emulator.cloudwatch.metric_store import Metrics
from trainyard.emulator.containers.cluster import STOP_GRACE, Cluster, Outcome
from trainyard.emulator.containers.containers import Containers, open_container_network
from trainyard.emulator.containers.isolation import Isolation, choose_isolation, remove_job_files
from trainyard.emulator.containers.node import (
    LOOPBACK,
    OWN_PYTHON,
    Node,
    build_base_environment,
    list_host_names,
)
from trainyard.emulator.iam.authority import restrict_objects
from trainyard.emulator.iam.s3_calls import iter_job_calls, iter_logging_calls, make_metric_call
from trainyard.emulator.internal_client import Aws
from trainyard.emulator.json_documents import RepeatedWrite, write_json
from trainyard.emulator.logs.log_store import LogStore
from trainyard.emulator.request_scope import ApiError, Thread, make_arn, read_region
from trainyard.emulator.request_shapes import Check
from trainyard.emulator.s3.object_store import ObjectStore
from trainyard.emulator.sagemaker.endpoints.model_containers import Models
from trainyard.emulator.sagemaker.jobs import container_images
from trainyard.emulator.sagemaker.jobs.failure_reason import (
    OFFLINE,
    explain_start_failure,
    find_scripts,
    format_failure_reason,
    format_version_notice,
    list_import_warnings,
)
from trainyard.emulator.sagemaker.jobs.job_files import JobFolder
from trainyard.emulator.sagemaker.jobs.transfers import ClientFault, check_destinations, split_uri
from trainyard.instance_types import MACHINES
from trainyard.language.definition_document import JOB_ENDED

LONGEST_MESSAGE = 1 << 20  # maximum bytes read of the failure message that a job left
TAIL = 400  # number of each node's last log lines that are searched for the reason of a failure
DEFECT = "InternalServerError: a defect of the emulator; its log has the traceback"
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class JobServices:
    """The services and settings that all jobs share.

    ``aws`` has the clients with which the emulator calls itself. ``models`` has the models that
    transform jobs and endpoints serve. ``metrics`` stores CloudWatch's metrics. ``stop_grace`` is
    the number of seconds from SIGTERM to SIGKILL. ``python`` is the interpreter that replaces
    images. ``on_change(kind, record)`` is called at each change of a job.
    """

    jobs: Path
    objects: ObjectStore
    logs: LogStore
    aws: Aws
    models: Models
    metrics: Metrics
    stop_grace: float = STOP_GRACE
    python: Path = OWN_PYTHON
    on_change: Callable[[str, dict], None] = lambda kind, record: None  # noqa: E731


NO_CAPACITY = (
    "CapacityError: Unable to provision requested ML compute capacity. Please retry using a "
    "different ML instance type."
)
"""FailureReason in AWS's words (quoted in DIAGNijmegen/rse-grand-challenge, issue 2631)."""


class JobStopError(Exception):
    """The job was stopped before its nodes ran."""


CANNOT_START = (
    "ClientError: CannotStartContainerError. Please make sure the container can be run with "
    "'docker run {}'."
)
"""FailureReason that AWS gives if an entrypoint cannot be run. The engine's message is appended."""

KINDS: dict[str, type["Job"]] = {}
"""Mapping of a kind to the class of its jobs."""


class Job(ABC):
    """A job. Create it, ``start`` it and ``wait`` for it; ``describe`` it at any time.

    Every subclass with a ``KIND`` is added to :data:`KINDS`, and the SageMaker API then has the
    operations of that kind.
    """

    KIND: ClassVar[str]
    """``Training``, ``Processing`` or ``Transform``: the prefix of its member names and of its log
    group.
    """
    RESOURCE: ClassVar[str]
    MESSAGE: ClassVar[str]
    """Path of the file in which a job may leave the reason of its failure."""
    MESSAGE_IS_FAILURE: ClassVar[bool] = True
    """Whether a job that wrote a message has failed even if it exited with status 0."""

    def __init_subclass__(cls) -> None:
        """Register the class in :data:`KINDS`."""
        KINDS[cls.KIND] = cls

    @staticmethod
    @abstractmethod
    def iter_checks(request: dict, python: Path) -> Iterator[Check]:
        """Iterate over functions that each check the request. It may be part of a pipeline
        definition, where some members are not known yet.
        """

    def __init__(self, job_services: JobServices, request: dict) -> None:
        self.job_services = job_services
        self.request = request
        self.name: str = request[f"{self.KIND}JobName"]
        self.directory = job_services.jobs / self.name
        self.arn = make_arn("sagemaker", f"{self.RESOURCE}/{self.name}")
        self.outputs: list[str] = []
        """URIs that the job uploaded to. The step cache checks whether they still exist."""
        self.lock = threading.RLock()
        self.record = self._build_first_record()
        self.save_or_retry = RepeatedWrite(self.save, f"job {self.name}")
        self._done_event = threading.Event()
        self._stop = threading.Event()
        self._cluster: Cluster | None = None
        self._outcome: Outcome | None = None
        self._tails: dict[str, deque[str]] = {}
        self._epoch = int(time.time())
        self.logs = self.measures = True  # set to False if the job's role has no permission
        self.interface = LOOPBACK
        """The network interface through which its nodes reach each other."""

    # what differs between the kinds

    @abstractmethod
    def count_instances(self) -> int: ...

    def stage(self, node: Node, hosts: list[str]) -> None:  # noqa: B027 - a hook
        """Put inputs and configuration into the folders of ``node``; set its command and
        environment.
        """

    def sync(self, nodes: list[Node]) -> AbstractContextManager:
        """Return a context manager that uploads continuously while the nodes run."""
        return contextlib.nullcontext()

    def read_image_uri(self) -> str:
        """Return the URI of the image; an empty string if the job has none of its own."""
        return ""

    def list_own_imports(self) -> set[str]:
        """Return the packages that the image's own program imports."""
        return set()

    def publish(self, nodes: list[Node], outcome: Outcome) -> None:  # noqa: B027 - a hook
        """Upload the results of a job that did not fail."""

    def enter(self, phase: str) -> None:  # noqa: B027 - a hook
        """Record that the job enters a phase (such as Downloading, Training, Uploading) or has
        ended.
        """

    def read_line(self, host: str, line: str) -> None:  # noqa: B027 - a hook: processing has no metrics
        """Process a line of the log of ``host``, for example to record metrics."""

    # life cycle

    def start(self, on_end: Callable[["Job"], None]) -> None:
        """Run the job in a thread. ``on_end`` is called when the record on disk is complete."""
        self.save()
        Thread(target=self._run, args=(on_end,), name=self.name, daemon=True).start()

    def stop(self, grace: float | None = None, unheard: float | None = None) -> None:
        """Send SIGTERM to the job's main processes, and SIGKILL to all its processes ``grace``
        seconds later.

        ``unheard`` replaces ``grace`` if none of the main processes handles SIGTERM. A second call
        can only shorten the time.
        """
        with self.lock:
            if self.status in JOB_ENDED:
                return
            if not self._stop.is_set():
                self._stop.set()
                self.set_status("Stopping")
            if self._cluster:
                self._cluster.stop(
                    self.job_services.stop_grace if grace is None else grace, unheard
                )

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the job has ended; return False if it has not after ``timeout`` seconds."""
        return self._done_event.wait(timeout)

    def _run(self, on_end: Callable[["Job"], None]) -> None:
        """Run the job, from the checks of its permissions to its end. Runs in a thread."""
        try:
            if self._get_instance_type() in self.job_services.aws.without_capacity:
                self._finish("Failed", NO_CAPACITY)
                return
            self._apply_role()
            check_destinations(self.job_services.objects, self.request)
            hosts = list_host_names(self.count_instances())
            python = self.job_services.python
            nodes = [Node(host, self.directory / host, python=python) for host in hosts]
            with grant_access(self.job_services.aws, self.role, self.is_isolated) as access:
                self._run_phases(nodes, hosts, access)
        except JobStopError:
            self._finish("Stopped")
        except ClientFault as fault:
            self._finish("Failed", f"ClientError: {fault}")
        except ApiError as error:  # S3 refused: a missing bucket, a damaged object
            self._finish("Failed", f"{error.fault}: {error.message}")
        # Any other exception is a defect of the emulator. ``finally`` records that, and the
        # emulator's log gets the traceback.
        except (EmulatorError, OSError) as error:
            log.exception("job %s failed in the emulator", self.name)
            is_bare = isinstance(error, OSError) and not isinstance(error, StorageError)
            if is_bare and error.errno in REMEDIES:
                error = make_storage_error(self.directory, error)
            self._finish("Failed", f"InternalServerError: the emulator failed: {error}")
        finally:
            if self.status not in JOB_ENDED:
                self._finish("Failed", DEFECT)
            try:
                remove_job_files(self.directory)
            # The threads in ``wait`` must be woken even if the folder cannot be deleted.
            finally:
                on_end(self)
                self._done_event.set()

    def _apply_role(self) -> None:
        """Apply the policies of the job's role from here on: replace ``job_services``, and set
        ``logs`` and ``measures``. Raises ``AccessDenied`` if they forbid what the job needs.
        """
        authority = self.job_services.aws.authority
        caller = authority.find_role_caller(self.role)
        if caller is None:
            return
        authority.check(caller, iter_job_calls(self.work))
        objects = restrict_objects(authority, self.role)
        self.job_services = replace(self.job_services, objects=objects)
        group = f"/aws/sagemaker/{self.KIND}Jobs"
        self.logs = authority.allows(caller, iter_logging_calls(group, self.name))
        self.measures = authority.allows(caller, [make_metric_call(group)])

    def _get_instance_type(self) -> str | None:
        request = self.request
        resources = request.get("ResourceConfig") or request.get("TransformResources")
        resources = resources or request.get("ProcessingResources", {}).get("ClusterConfig", {})
        return resources.get("InstanceType")

    @property
    def role(self) -> str:
        """ARN of the role that the job assumes."""
        return self.request["RoleArn"]

    @property
    def work(self) -> dict:
        """The request that determines which permissions the job's role needs."""
        return self.request

    @property
    def is_isolated(self) -> bool:
        """Whether the request sets EnableNetworkIsolation, at the top level or in its
        NetworkConfig.
        """
        network = self.request.get("NetworkConfig", self.request)
        return bool(network.get("EnableNetworkIsolation"))

    def _run_phases(self, nodes: list[Node], hosts: list[str], access: Access | None) -> None:
        """Do everything between Starting and the end. A subclass may override it."""
        if not container_images.runs_in_engine(self.read_image_uri()):
            self._run_nodes(nodes, hosts, access, choose_isolation())
            return
        with open_container_network(
            self.directory,
            access,
            alone=len(hosts) == 1,
            internet=self.job_services.aws.internet,
            gpus=(machine := MACHINES.get(self._get_instance_type() or "")) is not None
            and machine.kind == "gpu",
        ) as isolation:
            self._run_nodes(nodes, hosts, access, isolation)

    def _run_nodes(
        self, nodes: list[Node], hosts: list[str], access: Access | None, isolation: Isolation
    ) -> None:
        """Stage the nodes, run them, and finish the job."""
        self.interface = isolation.interface
        self._open_log(hosts, isolation.notice)
        self._check_stop()
        self.enter("Downloading")
        for node in nodes:
            node.image = self.read_image_uri() if isinstance(isolation, Containers) else ""
            python = None if node.image else node.python
            node.environment = build_base_environment(
                read_region(), len(nodes), python, self.interface
            )
            if access:
                node.environment |= access.build_environment(isolation)
            self.stage(node, hosts)
            self.job_services.aws.on_stage(self.name, node.name, node.ml)
            if not node.image:
                self._log_package_differences(node, self.read_image_uri())
            isolation.prepare(node, hosts)
            if node.image:
                self.write_notice(
                    node.name, f"Image {node.image} has the digest {node.digest} here."
                )
        # With the lock, stop() either finds the cluster, or _check_stop() finds the stop.
        with self.lock:
            self._check_stop()
            route = access.route if access else None
            self._cluster = Cluster(
                self.directory,
                nodes,
                isolation,
                self._receive_line,
                route,
                report=self.write_notice,
            )
        self.enter(self.KIND)
        try:
            with self.sync(nodes):
                self._outcome = self._cluster.run(
                    self._get_time_limit(), self.job_services.stop_grace
                )
        except ClientFault as fault:  # raised by an upload
            if not (self._outcome and self._outcome.failure):
                raise
            # The node's failure remains the reason; the upload's failure is only logged.
            self.write_notice(hosts[0], f"{fault}.")
        self._publish_and_finish(nodes, self._outcome)

    def _log_package_differences(self, node: Node, image: str) -> None:
        """Log which imported packages the interpreter lacks or has in another version than the
        image.
        """
        job_scripts = find_scripts(
            node, lambda uri: self.job_services.objects.locate_file(*split_uri(uri))
        )
        for line in list_import_warnings(node, job_scripts):
            self.write_notice(node.name, line)
            log.warning("%s: %s", self.name, line)
        imports = set().union(self.list_own_imports(), *(script.imports for script in job_scripts))
        installs = "\n".join(script.installs for script in job_scripts)
        if line := format_version_notice(node.python, image, imports, installs):
            self.write_notice(node.name, line)

    def _publish_and_finish(self, nodes: list[Node], outcome: Outcome) -> None:
        """Finish the job: as failed if a node failed, otherwise after publishing its results."""
        failure = outcome.failure
        messages = {node.name: self._read_message(node) for node in nodes}
        is_stopped = outcome.is_stopped or outcome.timed_out
        culprits = (e for e in outcome.exits if messages[e.node] and self.MESSAGE_IS_FAILURE)
        culprit = failure or next(culprits, None)
        # A stopped job may exit with any status and leave a message: that is no failure.
        if culprit and not (is_stopped and not failure):
            message = messages[culprit.node]
            self.record |= self.build_exit_members(message)
            if culprit.started:
                hint = "" if self.job_services.aws.internet and not self.is_isolated else OFFLINE
                why = format_failure_reason(culprit, message, self._tails, hint)
            else:
                command = "<image> train" if self.KIND == "Training" else "<image>"
                cause = explain_start_failure(culprit.node, self._tails)
                why = f"{CANNOT_START.format(command)} {cause}"
            self._finish("Failed", why)
            return
        self.enter("Uploading")
        self.publish(nodes, outcome)
        if outcome.timed_out:
            self._finish(
                "Stopped", f"MaxRuntimeExceeded: the job ran longer than {self._get_time_limit()} s"
            )
        else:
            self._finish("Stopped" if outcome.is_stopped else "Completed")

    def build_exit_members(self, message: str) -> dict:
        """Return the members of Describe's response that show a node's message."""
        return {}

    def _read_message(self, node: Node) -> str:
        """Return the text that the job wrote to ``MESSAGE``; empty if there is none."""
        folder, _, name = self.MESSAGE.rpartition("/")
        content = self.open_folder(node, folder).read(name, LONGEST_MESSAGE)
        return (content or b"").decode(errors="replace").strip()

    def open_folder(self, node: Node, path: str) -> JobFolder:
        """Return the folder that the job sees as ``path``. Omitted entries are reported in the
        job's log.
        """
        return JobFolder(node.ml, path, report=partial(self.write_notice, node.name))

    def _check_stop(self) -> None:
        if self._stop.is_set():
            raise JobStopError

    def _get_time_limit(self) -> float | None:
        """Return MaxRuntimeInSeconds; None if the request does not set it."""
        return self.request.get("StoppingCondition", {}).get("MaxRuntimeInSeconds")

    # record

    @property
    def status(self) -> str:
        return self.record[f"{self.KIND}JobStatus"]

    def set_status(self, status: str, failure: str | None = None) -> None:
        """Set the status and, if given, the FailureReason, and save the record."""
        with self.lock:
            self.record[f"{self.KIND}JobStatus"] = status
            self.record["LastModifiedTime"] = time.time()
            if failure:
                # 1024 characters is SageMaker's limit for FailureReason.
                self.record["FailureReason"] = failure[:1024]
            self.save_or_retry()

    def describe(self) -> dict:
        with self.lock:
            return dict(self.record)

    def save(self) -> None:
        """Write job.json, and report the record to ``on_change``."""
        with self.lock:
            document = {"kind": self.KIND, "describe": self.record, "outputs": self.outputs}
            write_json(self.directory / "job.json", document)
            self.job_services.on_change(self.KIND, self.record)

    def _finish(self, status: str, failure: str | None = None) -> None:
        """Record the job's end: the time, the final status and the reason of a failure."""
        with self.lock:
            self.record[f"{self.KIND}EndTime"] = time.time()
            self.enter(status)
            self.set_status(status, failure)

    def _build_first_record(self) -> dict:
        now = time.time()
        members = {
            f"{self.KIND}JobArn": self.arn,
            f"{self.KIND}JobStatus": "InProgress",
            "CreationTime": now,
            "LastModifiedTime": now,
        }
        return {key: value for key, value in self.request.items() if key != "Tags"} | members

    # log

    def _open_log(self, hosts: list[str], notice: str | None) -> None:
        """Create the hosts' log streams, and write the notice to them and to the emulator's log."""
        self._tails = {host: deque(maxlen=TAIL) for host in hosts}
        for host in hosts:
            self._append_to_log(
                host
            )  # creates the stream, which a node has even if it logs nothing
            if notice:
                self.write_notice(host, notice)
        if notice:
            log.warning("%s: %s", self.name, notice)

    def write_notice(self, host: str, notice: str) -> None:
        """Write ``notice``, marked as the emulator's, to the log of ``host``."""
        self._append_to_log(host, f"[emulator] {notice}")

    def _append_to_log(self, host: str, *lines: str) -> None:
        """Append lines to the log of ``host``, if the job's role may write logs."""
        if not self.logs:
            return
        group = f"/aws/sagemaker/{self.KIND}Jobs"
        self.job_services.logs.append(group, f"{self.name}/{host}-{self._epoch}", lines)

    def _receive_line(self, host: str, line: str) -> None:
        """Keep a line of a node's log for failure reasons, read its metrics, and store it."""
        self._tails[host].append(line)
        self.read_line(host, line)
        if line:  # CloudWatch Logs refuses an empty message
            self._append_to_log(host, line)
