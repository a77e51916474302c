"""Run a job's nodes together: start them, read their logs, and stop all when one fails."""

import contextlib
import json
import os
import queue
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, cast

import psutil

from trainyard.common.errors import EmulatorError
from trainyard.emulator.containers.isolation import Isolation
from trainyard.emulator.containers.node import SYSTEM_PATH, Node
from trainyard.emulator.containers.proxy import Doors, Route
from trainyard.emulator.json_documents import write_json

SUPERVISOR = {"PATH": os.environ.get("PATH", SYSTEM_PATH), "LANG": "C.UTF-8"}
"""The complete environment of the supervisor. It must contain no secrets, because the supervisor is
process 1 of the job, and a job can read the environment of every process of its user that it sees.
"""
STOP_GRACE = 120.0  # seconds between SIGTERM and SIGKILL on AWS: StopTrainingJob's documentation
PEER_GRACE = 1.0  # seconds between SIGTERM and SIGKILL for the other nodes when one fails
DRAIN = 10.0  # maximum seconds to wait for the end of a log when all processes have ended
UNHEARD = (
    "SIGTERM reaches the first process of this container only. That process neither handles it nor "
    "passes it on to a script, as on AWS (aws/sagemaker-training-toolkit#125). All processes are "
    "killed {}: save checkpoints while the job runs."
)
OnLine = Callable[[str, str], None]


@dataclass(frozen=True, slots=True)
class Exit:
    """The end of a node's main process. ``status`` is the exit status, or minus the signal's
    number.

    ``started`` is False for a container whose first process could not be started.
    """

    node: str
    status: int
    started: bool = True


@dataclass(slots=True)
class Outcome:
    """The result of running a cluster. ``exits`` are in order of time, so the first failure is the
    cause.
    """

    exits: list[Exit] = field(default_factory=list)
    is_stopped: bool = False
    timed_out: bool = False

    @property
    def failure(self) -> Exit | None:
        """The end of the first node that failed by itself. None if all succeeded or were
        stopped.
        """
        return next((end for end in self.exits if end.status != 0), None)


class Cluster:
    """The nodes of one job. ``on_line(node, line)`` is called with each log line, from several
    threads.

    ``route`` is their way to the emulator's endpoint if they have a network of their own; if it is
    None, they cannot reach it. ``report(node, text)`` is called with notices about a stop.
    """

    def __init__(
        self,
        directory: Path,
        nodes: list[Node],
        isolation: Isolation,
        on_line: OnLine,
        route: Route | None = None,
        report: OnLine = lambda node, text: None,
    ) -> None:
        self._directory = directory
        self._nodes = nodes
        self._isolation = isolation
        self._on_line, self._report = on_line, report
        self._doors = Doors(route, directory) if route and isolation.loopback else None
        self._events: queue.SimpleQueue[dict] = queue.SimpleQueue()
        self._outcome = Outcome()
        self._kill_at: float | None = None
        self._unheard_grace = 0.0
        self._terminating = False
        self._deaf: set[str] = set()
        self._waiting = {node.name for node in nodes}

    def stop(self, grace: float, unheard: float | None = None) -> None:
        """Send SIGTERM to each node's first process, and SIGKILL to all processes ``grace`` seconds
        later.

        ``unheard`` replaces ``grace`` if none of the first processes handles SIGTERM.
        """
        self._events.put({"stop": grace, "unheard_grace": grace if unheard is None else unheard})

    def run(self, limit: float | None, grace: float) -> Outcome:
        """Run the nodes until they have ended. Return when none of their processes is left.

        After ``limit`` seconds they are stopped as by :meth:`stop` with ``grace``. Raises
        :class:`EmulatorError` if they cannot be started.
        """
        with contextlib.closing(self._doors) if self._doors else contextlib.nullcontext():
            readers = self._start_supervisor()
            deadline = None if limit is None else time.monotonic() + limit
            try:
                while (event := self._wait_for_event(deadline)) is not None:
                    if event.get("timeout"):
                        deadline = None
                        self._outcome.timed_out = True
                        self._terminate(grace, grace)
                    else:
                        self._apply_event(event)
            finally:
                self._commands.close()  # the supervisor then kills what is left and ends
                self._process.wait()
                for reader in readers:
                    reader.join(DRAIN)
            return self._outcome

    # starting

    def _start_supervisor(self) -> list[threading.Thread]:
        """Start the supervisor, which starts the nodes; return the threads that read its output."""
        with contextlib.ExitStack() as child_ends, contextlib.ExitStack() as own_ends:
            pipes = {}
            for node in self._nodes:
                read, write = os.pipe()
                own_ends.callback(os.close, read)
                child_ends.callback(os.close, write)
                pipes[node.name] = read, write
            spec = self._directory / "spec.json"
            write_json(spec, self._build_spec(pipes))
            descriptors = [write for _, write in pipes.values()]
            self._process = subprocess.Popen(
                self._isolation.supervisor(spec),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=SUPERVISOR,
                pass_fds=[*descriptors, *([self._doors.descriptor] if self._doors else [])],
                start_new_session=True,  # so that Ctrl-C reaches only the emulator
            )
            self._commands = cast(IO[str], self._process.stdin)
            own_ends.pop_all()  # the readers close them
        if self._doors:
            self._doors.start_receiving(self._process.pid)
        readers = [
            _start_thread(self._forward_log, name, read) for name, (read, _) in pipes.items()
        ]
        return [*readers, _start_thread(self._queue_events)]

    def _build_spec(self, pipes: dict[str, tuple[int, int]]) -> dict:
        """Return the supervisor's SPEC. ``pipes``: (read, write) descriptors of each node's log."""
        nodes = [
            {
                "name": node.name,
                "argv": node.command,
                "env": node.environment,
                "cwd": str(node.ml),
                "log": pipes[node.name][1],
            }
            for node in self._nodes
        ]
        setup = self._isolation.setup(self._directory)
        setup += self._doors.write_resolv_conf() if self._doors else []
        return {
            "setup": setup,
            "loopback": self._isolation.loopback,
            "doors": self._doors.build_spec() if self._doors else None,
            "nodes": nodes,
        }

    def _forward_log(self, node: str, descriptor: int) -> None:
        r"""Call ``on_line`` for each line of the node's log. A ``\r`` also ends a line."""
        with open(descriptor, encoding="utf-8", errors="replace", newline=None) as file:
            for line in file:
                self._on_line(node, line.rstrip("\n"))

    def _queue_events(self) -> None:
        """Put the supervisor's events, and then its end, into the queue."""
        streams = self._process.stdout, self._process.stderr
        with cast(IO[str], streams[0]) as events, cast(IO[str], streams[1]) as errors:
            for line in events:
                self._events.put(json.loads(line))
            self._events.put({"end": errors.read()})

    # running

    def _wait_for_event(self, deadline: float | None) -> dict | None:
        """Return the next event; None if the supervisor has ended. Send SIGKILL when it is due."""
        while True:
            limits = [limit for limit in (self._kill_at, deadline) if limit is not None]
            try:
                wait = max(0.0, min(limits) - time.monotonic()) if limits else None
                event = self._events.get(timeout=wait)
            except queue.Empty:
                if self._kill_at is not None and time.monotonic() >= self._kill_at:
                    self._kill_at = None
                    self._send_command("kill")
                    continue
                return {"timeout": True}
            if "end" not in event:
                return event
            unfinished = self._waiting and not self._outcome.is_stopped
            if unfinished and not self._outcome.failure:
                # The supervisor was killed or crashed before its nodes had ended.
                status = self._process.wait()
                detail = event["end"].strip() or f"exit status {status}"
                raise EmulatorError(f"the job's supervisor ended before its nodes: {detail}")
            return None

    def _apply_event(self, event: dict) -> None:
        """Handle an event of the supervisor, or a request to stop. Raises EmulatorError if a node
        could not be started.
        """
        if "error" in event:
            raise EmulatorError(f"cannot start the job's nodes: {event['error']}")
        if "stop" in event:
            self._outcome.is_stopped = True
            self._terminate(event["stop"], event["unheard_grace"])
        elif "pid" in event:
            path, pid = self._directory / "nodes.json", event["pid"]
            pids = json.loads(path.read_text()) if path.exists() else {}
            host = _find_host_pid(self._process.pid, pid) if self._isolation.loopback else pid
            write_json(path, pids | {event["node"]: host})
        elif "unheard" in event:
            self._report_unhandled_sigterm(event["node"])
        elif "status" in event:
            end = Exit(event["node"], event["status"], event.get("started", True))
            self._waiting.discard(end.node)
            if not self._terminating:  # later ends are caused by us
                self._outcome.exits.append(end)
                if end.status != 0 and self._waiting:
                    self._terminate(PEER_GRACE, PEER_GRACE)

    def _terminate(self, grace: float, unheard: float) -> None:
        """Send SIGTERM, and SIGKILL after ``grace`` seconds. A second call can only shorten it."""
        kill_at = time.monotonic() + grace
        if not self._terminating:
            self._terminating = True
            self._kill_at, self._unheard_grace = kill_at, unheard
            self._send_command("terminate")
        elif self._kill_at is not None:
            self._kill_at = min(self._kill_at, kill_at)

    def _report_unhandled_sigterm(self, node: str) -> None:
        """Report that a node does not handle SIGTERM. If no remaining node does, kill them
        earlier.
        """
        self._deaf.add(node)
        seconds = self._unheard_grace
        if self._outcome.is_stopped or self._outcome.timed_out:  # otherwise another node has failed
            when = f"in {seconds:g} s" if seconds else f"at once, on AWS {STOP_GRACE:g} s later"
            self._report(node, UNHEARD.format(when))
        if self._waiting <= self._deaf and self._kill_at is not None:
            self._kill_at = min(self._kill_at, time.monotonic() + seconds)

    def _send_command(self, word: str) -> None:
        # The supervisor has ended: its last event will come.
        with contextlib.suppress(BrokenPipeError):
            # Unbuffered, because close() must not try again to write a command that failed.
            os.write(self._commands.fileno(), f"{word}\n".encode())


def _start_thread(target: Callable[..., None], *args: object) -> threading.Thread:
    thread = threading.Thread(target=target, args=args, daemon=True)
    thread.start()
    return thread


def _find_host_pid(supervisor: int, inner: int) -> int | None:
    """Return the process id on this machine of the process ``inner`` of the supervisor's pid
    namespace.

    Return None if it has already ended, which a short job may do at any time.
    """
    try:
        family = psutil.Process(supervisor).children(recursive=True)
    except psutil.NoSuchProcess:
        return None
    for process in family:
        try:
            status = Path(f"/proc/{process.pid}/status").read_text()
        # It ended before the file was opened or read.
        except (FileNotFoundError, ProcessLookupError):
            continue
        if f"\t{inner}\n" in status.partition("NSpid:")[2].partition("\n")[0] + "\n":
            return process.pid
    return None
