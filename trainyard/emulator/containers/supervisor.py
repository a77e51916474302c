"""``python -I supervisor.py SPEC.json``: start a job's nodes, and let no process outlive this one.

It is the first process of a job, started by ``trainyard.emulator.containers.cluster``. In
namespaces it is process 1, so the kernel kills all remaining processes when it exits. Uses only the
standard library.

SPEC    {"setup": [argv, ...], "loopback": bool, "nodes": [{name, argv, env, cwd, log}, ...],
        "doors": {"channel": descriptor, "addresses": [[host, port], ...],
                  "internet": bool} or null}
stdin   ``terminate`` (SIGTERM, see ``terminate_nodes``) or ``kill`` (SIGKILL), one word a line.
        End of file means that the emulator ended, even by SIGKILL: kill all, exit.
stdout  one JSON object per line: {"node", "pid"} started, {"node", "status"} ended (negative:
        the signal), {"node", "unheard"} not signalled, because it does not handle SIGTERM,
        {"error"} could not start.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
SIOCSIFFLAGS, IFF_UP = 0x8914, 0x1  # linux/sockios.h, linux/if.h
SIOCSIFADDR, SIOCSIFNETMASK = 0x8916, 0x891C  # linux/sockios.h
WAY_OUT = 10.0  # maximum seconds to wait for the connection to the internet
TRACK_INTERVAL = 0.5  # seconds between checks of the process tree, without namespaces


class NamespaceProcesses:
    """All processes of the job except this one, found by the kernel through the pid namespace."""

    def send_signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):  # no process is left
            os.kill(-1, number)


class ProcessTree:
    """The processes of a job without a pid namespace: all descendants, including those whose
    parents have died.
    """

    def __init__(self) -> None:
        import psutil  # not in the standard library: only needed without namespaces

        self._psutil, self._lock = psutil, threading.Lock()
        self._processes: set[psutil.Process] = set()
        if sys.platform == "linux":  # orphans become our children
            ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        threading.Thread(target=self._track, daemon=True).start()

    def _scan_processes(self) -> None:
        with self._lock:
            self._processes |= set(self._psutil.Process().children(recursive=True))
            self._processes = {process for process in self._processes if process.is_running()}

    def _track(self) -> None:
        """Record the process tree repeatedly: on macOS, a worker that leaves its parent can be
        found only if it was recorded before.
        """
        while not threading.Event().wait(TRACK_INTERVAL):
            self._scan_processes()

    def send_signal(self, number: int) -> None:
        self._scan_processes()
        for process in self._processes:
            with contextlib.suppress(self._psutil.NoSuchProcess):  # it has already ended
                process.send_signal(number)


def main() -> None:
    """Start the nodes, execute commands until all have ended, and kill the remaining processes."""
    spec = json.loads(Path(sys.argv[1]).read_text())
    everyone = NamespaceProcesses() if os.getpid() == 1 else ProcessTree()
    try:
        running = start_nodes(spec)
    except (OSError, subprocess.CalledProcessError) as error:
        print_event(error=f"{error} {getattr(error, 'stderr', '') or ''}".strip())
        sys.exit(1)
    threading.Thread(target=run_commands, args=(everyone, running), daemon=True).start()
    reap_nodes(running)
    kill_job_and_exit(everyone)


def start_nodes(spec: dict) -> dict[int, str]:
    """Start every node. Return a mapping of process id to node name."""
    if spec["loopback"]:
        bring_up_loopback()
    if spec["doors"]:
        open_listening_sockets(spec["doors"]["addresses"], spec["doors"]["channel"])
        if spec["doors"]["internet"]:
            wait_for_internet_route()
    for argv in spec["setup"]:
        subprocess.run(argv, check=True, capture_output=True, text=True)
    running = {}
    for node in spec["nodes"]:
        process = start_node(node)
        process.returncode = 0  # reap() collects the status; subprocess must not wait for it
        running[process.pid] = node["name"]
        print_event(node=node["name"], pid=process.pid)
    return running


def start_node(node: dict) -> subprocess.Popen:
    """Start a node's main process, and close its log's descriptor in this process."""
    process = subprocess.Popen(
        node["argv"],
        env=node["env"],
        cwd=node["cwd"],
        stdin=subprocess.DEVNULL,
        stdout=node["log"],
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    os.close(node["log"])  # so that the reader sees the end when the node's processes have ended
    return process


def bring_up_loopback() -> None:
    """Bring the loopback interface up, which is down in a new network namespace.

    Also allow all processes to use ports below 1024, which otherwise only the namespace's owner may
    use; a job does not own it.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, SIOCSIFFLAGS, struct.pack("16sh", b"lo", IFF_UP))
    with contextlib.suppress(OSError):  # a read-only /proc/sys: ports below 1024 stay closed
        Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").write_text("0")


def open_listening_sockets(addresses: list[tuple[str, int]], channel: int) -> None:
    """Listen at each of the addresses in this network. Send the sockets to the emulator."""
    with contextlib.ExitStack() as stack:
        for number, (host, _) in enumerate(addresses):
            if not host.startswith("127."):
                add_address(f"lo:{number}", host)
        doors = [stack.enter_context(socket.create_server((h, p))) for h, p in addresses]
        # The emulator accepts connections on them although it is in another network, so no process
        # is needed in between.
        out = stack.enter_context(socket.socket(fileno=channel))
        socket.send_fds(out, [b"doors"], [door.fileno() for door in doors])


def wait_for_internet_route() -> None:
    """Wait for the default route, which the emulator's tool creates when it has received the
    sockets.

    Raises OSError after WAY_OUT seconds.
    """
    end = time.monotonic() + WAY_OUT
    routes = Path("/proc/net/route")
    while not any(line.split()[1] == "00000000" for line in routes.read_text().splitlines()):
        if time.monotonic() > end:
            raise OSError(
                f"there is no connection to the internet after {WAY_OUT:g} s, see the job's "
                "internet.log"
            )
        time.sleep(0.01)


def add_address(label: str, host: str) -> None:
    """Add an address to an interface. ``label`` is the interface's name and an unused suffix, as in
    ``lo:1``.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for request, address in ((SIOCSIFADDR, host), (SIOCSIFNETMASK, "255.255.255.255")):
            socket_address = struct.pack("HH4s8x", socket.AF_INET, 0, socket.inet_aton(address))
            fcntl.ioctl(sock, request, struct.pack("16s16s", label.encode(), socket_address))


def run_commands(everyone: NamespaceProcesses | ProcessTree, running: dict[int, str]) -> None:
    """Execute the commands from standard input; when it is closed, kill the job and exit."""
    for line in sys.stdin:
        if line.strip() == "terminate":
            terminate_nodes(running)
        else:
            everyone.send_signal(signal.SIGKILL)
    kill_job_and_exit(everyone)


def terminate_nodes(running: dict[int, str]) -> None:
    """Send SIGTERM to each node's first process and to no other, as a container engine does."""
    for pid, name in list(running.items()):
        # On AWS it is process 1 of its container, to which the kernel delivers no signal that it
        # does not handle (pid_namespaces(7)): a shell neither ends nor passes the signal on, and
        # what it runs continues.
        if not handles_sigterm(pid):
            print_event(node=name, unheard=True)
            continue
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


def handles_sigterm(pid: int) -> bool:
    """Return whether the process has a handler for SIGTERM. Return False if that is not known."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (signal.SIGTERM - 1) & 1)
    return False


def reap_nodes(running: dict[int, str]) -> None:
    """Wait until every node's main process has ended. Orphaned processes are reaped, too."""
    with contextlib.suppress(ChildProcessError):  # finish() in the other thread has reaped all
        while running:
            pid, status = os.wait()
            if pid in running:
                print_event(node=running.pop(pid), status=os.waitstatus_to_exitcode(status))


def kill_job_and_exit(everyone: NamespaceProcesses | ProcessTree) -> None:
    """Kill all processes of the job, reap them, and exit."""
    everyone.send_signal(signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):  # all have been reaped
        while True:
            os.wait()
    os._exit(0)


def print_event(**event: object) -> None:
    with contextlib.suppress(BrokenPipeError):  # the emulator has ended: stdin will end, too
        # A single write, because several threads print.
        print(f"{json.dumps(event)}\n", end="", flush=True)


if __name__ == "__main__":
    main()
