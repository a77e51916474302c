"""One invocation of a function: a separate process in the runtime of jobs, for one event."""

import contextlib
import json
import math
import shutil
import threading
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainyard.emulator.client_environment import Access, grant_access
from trainyard.emulator.containers.cluster import Cluster, Outcome
from trainyard.emulator.containers.install_layer import remove_temporary_folder
from trainyard.emulator.containers.isolation import choose_isolation
from trainyard.emulator.containers.node import Node, build_base_environment
from trainyard.emulator.json_documents import write_json
from trainyard.emulator.request_scope import read_region
from trainyard.emulator.sagemaker.jobs.job import JobServices
from trainyard.emulator.sagemaker.jobs.job_files import JobFolder

INIT = 60.0  # seconds to import the handler's module; AWS allows 10, on a dedicated machine
LARGEST = 6 * 1024 * 1024  # maximum bytes of an event or of a result
ANSWER = "answer.json"
LONGEST_ANSWER = LARGEST + 65_536  # maximum bytes of that file, with what bootstrap.py adds
TAIL = 4096  # bytes at the end of the log that LogType=Tail returns


@dataclass(slots=True)
class Result:
    """The result of an invocation.

    ``payload`` is JSON. After a failure it has AWS's errorMessage, errorType and stackTrace.
    """

    payload: bytes
    is_failure: bool
    tail: bytes = b""

    @property
    def failure(self) -> str:
        """The error as text, such as ``KeyError: 'x'``; only after a failure."""
        error = json.loads(self.payload)
        return f"{error['errorType']}: {error['errorMessage']}"


@dataclass(slots=True, eq=False)
class Invocation:
    """One invocation of a function.

    ``configuration`` is that of the function. ``code`` is the folder with its unzipped code, which
    is not changed.
    """

    job_services: JobServices
    configuration: dict
    code: Path
    directory: Path
    request: str = field(default_factory=lambda: str(uuid.uuid4()))
    _cluster: Cluster | None = None
    _timer: threading.Timer | None = None
    _timed_out: bool = False
    _is_stopped: bool = False
    _lines: list[str] = field(default_factory=list)
    _stream: str = ""

    def run(self, event: Any) -> Result:
        """Call the handler, and wait for its result. Raises ``EmulatorError``, ``OSError``."""
        root = self.directory / "function"
        node = Node("function", root, python=self.job_services.python, may_write=False)
        try:
            self._prepare_node(node, event)
            with grant_access(self.job_services.aws, self.configuration["Role"], False) as access:
                start_time = time.monotonic()
                outcome = self._make_cluster(node, access).run(
                    INIT + self.configuration["Timeout"], 0
                )
            return self._make_result(node, outcome, 1000 * (time.monotonic() - start_time))
        finally:
            if self._timer:
                self._timer.cancel()
            remove_temporary_folder(node)
            shutil.rmtree(self.directory, ignore_errors=True)

    def stop(self) -> None:
        """Kill the process of the invocation, because the emulator stops."""
        self._is_stopped = True
        if self._cluster:
            self._cluster.stop(0)

    def _prepare_node(self, node: Node, event: Any) -> None:
        """Write the process's files, and set its environment and command."""
        node.make_directories()
        if choose_isolation().loopback:
            node.ml.symlink_to(self.code)  # the process sees it as /opt/ml
        else:
            shutil.copytree(self.code, node.ml)
        values = {
            "event": event,
            "request": self.request,
            "arn": self.configuration["FunctionArn"],
            "seconds": self.configuration["Timeout"],
        }
        write_json(node.home / "event.json", values)
        now = time.strftime("%Y/%m/%d", time.gmtime())
        self._stream = f"{now}/[$LATEST]{uuid.uuid4().hex}"
        node.environment = (
            build_base_environment(read_region(), 1, node.python) | self._build_environment()
        )
        node.command = [str(node.python), str(Path(__file__).with_name("bootstrap.py"))]

    def _build_environment(self) -> dict[str, str]:
        function = self.configuration
        return {
            **function.get("Environment", {}).get("Variables", {}),
            "_HANDLER": function["Handler"],
            "LAMBDA_TASK_ROOT": "/opt/ml",
            "TZ": "UTC",
            "AWS_EXECUTION_ENV": f"AWS_Lambda_{function['Runtime']}",
            "AWS_LAMBDA_FUNCTION_NAME": function["FunctionName"],
            "AWS_LAMBDA_FUNCTION_VERSION": function["Version"],
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(function["MemorySize"]),
            "AWS_LAMBDA_LOG_GROUP_NAME": self._group,
            "AWS_LAMBDA_LOG_STREAM_NAME": self._stream,
        }

    def _make_cluster(self, node: Node, access: Access | None) -> Cluster:
        """Return a cluster whose only process is that of the invocation, ready to run."""
        isolation = choose_isolation()
        node.environment |= access.build_environment(isolation) if access else {}
        isolation.prepare(node, [node.name])
        if isolation.notice:
            self._write_line(f"[emulator] {isolation.notice}")
        route = access.route if access else None
        self._cluster = Cluster(self.directory, [node], isolation, self._receive_line, route)
        # If ``stop`` was called before this line, it found no cluster to stop.
        if self._is_stopped:
            self._cluster.stop(0)
        return self._cluster

    def _make_result(self, node: Node, outcome: Outcome, milliseconds: float) -> Result:
        """Return the result of the ended process, and write the last lines of the log."""
        home = JobFolder(node.home, "/opt/home", job_root="/opt/home", report=self._write_line)
        text, memory = home.read(ANSWER, LONGEST_ANSWER + 1), 0
        if self._timed_out:
            seconds = f"{self.configuration['Timeout']:.2f}"
            message = f"RequestId: {self.request} Error: Task timed out after {seconds} seconds"
            result = self._make_failure("Sandbox.Timedout", message)
        elif text and len(text) > LONGEST_ANSWER:
            result = self._make_oversize_failure()
        elif (answer := _parse_answer(text)) is None:
            result = self._make_failure("Runtime.ExitError", self._format_exit_message(outcome))
        else:
            milliseconds, memory = answer["milliseconds"], answer["memory"]
            payload = json.dumps(answer["error"] or answer["result"]).encode()
            if len(payload) > LARGEST:
                result = self._make_oversize_failure()
            else:
                result = Result(payload, bool(answer["error"]))
        self._write_line(f"END RequestId: {self.request}")
        billed_milliseconds = int(milliseconds) + 1
        size = self.configuration["MemorySize"]
        self._write_line(
            f"REPORT RequestId: {self.request}\tDuration: {milliseconds:.2f} ms\tBilled Duration: "
            f"{billed_milliseconds} ms\tMemory Size: {size} MB\tMax Memory Used: {memory} MB\t"
        )
        result.tail = "".join(f"{line}\n" for line in self._lines).encode()[-TAIL:]
        return result

    def _make_oversize_failure(self) -> Result:
        limit = f"exceeded maximum allowed payload size ({LARGEST} bytes)."
        return self._make_failure("Function.ResponseSizeTooLarge", f"Response payload size {limit}")

    def _format_exit_message(self, outcome: Outcome) -> str:
        status = outcome.failure.status if outcome.failure else 0
        how = f"with error: {f'signal: {-status}' if status < 0 else f'exit status {status}'}"
        how = how if status else "without providing a reason"
        if self._is_stopped:
            how = "with error: the emulator is stopping"
        return f"RequestId: {self.request} Error: Runtime exited {how}"

    def _make_failure(self, kind: str, message: str) -> Result:
        self._write_line(message)
        return Result(json.dumps({"errorType": kind, "errorMessage": message}).encode(), True)

    # The log.

    @property
    def _group(self) -> str:
        logging = self.configuration.get("LoggingConfig", {})
        return logging.get("LogGroup") or f"/aws/lambda/{self.configuration['FunctionName']}"

    def _receive_line(self, _: str, line: str) -> None:
        """Write a line of the process to the log; the line START starts the time-out."""
        # As on AWS, the time-out starts with the handler, not with the import of its module.
        if self._timer is None and line.startswith(f"START RequestId: {self.request}"):
            self._timer = threading.Timer(self.configuration["Timeout"], self._time_out)
            self._timer.daemon = True
            self._timer.start()
        self._write_line(line)

    def _write_line(self, line: str) -> None:
        self._lines.append(line)
        self.job_services.logs.append(self._group, self._stream, [line])

    def _time_out(self) -> None:
        self._timed_out = True
        if self._cluster:
            self._cluster.stop(0)


def _parse_answer(text: bytes | None) -> dict[str, Any] | None:
    """Return the document that bootstrap.py wrote. Return None if it is missing or malformed."""
    with contextlib.suppress(ValueError, RecursionError):
        match json.loads(text or b"null"):
            case {
                "result": _,
                "error": None | {"errorType": str(), "errorMessage": str()},
                "milliseconds": float(),
                "memory": int(),
            } as answer if math.isfinite(answer["milliseconds"]):
                return answer
    return None
