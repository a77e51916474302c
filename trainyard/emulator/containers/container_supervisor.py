"""``main`` with arguments SPEC.json ENGINE: run a job's nodes as containers, and remove them.

It has the same commands and events as :mod:`supervisor`. ENGINE is JSON: ``command``, the engine's
client; ``containers``, a mapping of node to container; ``after``, commands to run when all have
ended; ``removal``, the command that removes containers; ``environment`` of all these commands. Here
a node's process is the engine's client in the foreground, which passes on the container's output
and exit status. Uses only the standard library.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from trainyard.emulator.containers.supervisor import handles_sigterm, print_event, start_node

DRAIN = 5.0  # maximum seconds until a client ends after its container
PATIENCE = 60.0  # maximum seconds for a response of the engine; then the call has failed
RETRY = 0.2  # seconds until SIGTERM is sent again to a container that did not exist yet


class Containers:
    """The containers of one job, from the start of their clients to their removal."""

    def __init__(self, engine: dict, nodes: list[dict]) -> None:
        self._engine = engine
        self._clients = {node["name"]: start_node(node) for node in nodes}
        self._lock = threading.Lock()
        for name, client in self._clients.items():
            print_event(node=name, pid=client.pid)
        self._waits = [self._start_thread(self._report_exit, name) for name in self._clients]

    def join(self) -> None:
        for wait in self._waits:
            wait.join()

    def terminate(self) -> None:
        """Send SIGTERM to each container's first process, as ``docker stop`` does."""
        for name in self._list_running():
            pid = self._inspect(name, "{{.State.Pid}}")
            # If the engine runs on another machine, its process ids are not valid here.
            visible = pid.isdecimal() and int(pid) and Path(f"/proc/{pid}").exists()
            if visible and not handles_sigterm(int(pid)):
                print_event(node=name, unheard=True)
            self._start_thread(self._send_term, name)

    def kill(self) -> None:
        if names := [self._engine["containers"][name] for name in self._list_running()]:
            self._call("kill", "--signal", "KILL", *names)

    def finish(self) -> None:
        """Kill the running containers, remove all containers, and exit."""
        self._lock.acquire()  # never released, because the process ends here
        self.kill()
        for client in self._clients.values():
            try:
                client.wait(DRAIN)
            except subprocess.TimeoutExpired:  # the engine does not respond or is still starting it
                client.kill()
        for command in self._engine["after"]:
            self._run(command)
        self._run([*self._engine["removal"], *self._engine["containers"].values()])
        os._exit(0)

    def _list_running(self) -> list[str]:
        return [name for name, client in self._clients.items() if client.poll() is None]

    def _send_term(self, name: str) -> None:
        """Send SIGTERM to the container until that succeeds or its client has ended."""
        container = self._engine["containers"][name]
        while name in self._list_running() and self._call("kill", "--signal", "TERM", container):
            threading.Event().wait(RETRY)

    def _report_exit(self, name: str) -> None:
        """Wait until the node's client has ended, and report its status."""
        status = self._clients[name].wait()
        began = self._inspect(name, "{{.State.StartedAt}}") if status > 0 else "with success"
        # 0001-01-01 is Go's zero time, which means that the engine could not start the container.
        print_event(node=name, status=status, started=bool(began) and not began.startswith("0001-"))

    def _inspect(self, name: str, form: str) -> str:
        inspect = ["inspect", "--type", "container", "--format", form]
        command = [*self._engine["command"], *inspect, self._engine["containers"][name]]
        return self._run(command).stdout.strip()

    def _call(self, *arguments: str) -> int:
        return self._run([*self._engine["command"], *arguments]).returncode

    def _run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        settings = {"env": self._engine["environment"], "capture_output": True, "text": True}
        try:
            return subprocess.run(command, **settings, timeout=PATIENCE, check=False)
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(command, 1, "", "")

    def _start_thread(self, target: Callable[[str], None], *arguments: str) -> threading.Thread:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        thread.start()
        return thread


def run_commands(containers: Containers) -> None:
    """Execute the commands from standard input; when it is closed, call ``finish``."""
    for line in sys.stdin:
        containers.terminate() if line.strip() == "terminate" else containers.kill()
    containers.finish()


def main() -> None:
    """Start the containers, execute commands until all have ended, and remove them."""
    spec = json.loads(Path(sys.argv[1]).read_text())
    try:
        containers = Containers(json.loads(sys.argv[2]), spec["nodes"])
    except OSError as error:
        print_event(error=str(error))
        sys.exit(1)
    threading.Thread(target=run_commands, args=(containers,), daemon=True).start()
    containers.join()
    containers.finish()
