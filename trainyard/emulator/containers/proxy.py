"""Network access from a job to the endpoint: sockets in the job's network, served by the emulator.

A job's network has only a loopback. The supervisor, inside the network, listens at the endpoint's
address and at the address of AWS's container credentials, and passes these two sockets, the doors,
out of the network. The emulator accepts the connections. There is no process in between, and
nothing else can be reached.
"""

import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from trainyard.common.errors import EmulatorError

# Access from a job's network to the internet, if the user requests it, with ``pasta`` or
# ``slirp4netns``. Both are network stacks in user space: they need no privileges and end with the
# job. This machine's own loopback stays unreachable.


@dataclass(frozen=True, slots=True)
class NetworkTool:
    """A tool for outbound traffic. ``command(pid)`` is the command that connects the namespaces of
    the process ``pid`` to the internet until it is killed.

    ``nameserver`` is the address of the name server inside.
    """

    command: Callable[[int], list[str]]
    nameserver: str


NAMESERVER = "192.0.2.53"
"""Address at which pasta forwards queries to this machine's name server. It is in a reserved range,
so it is unused elsewhere.
"""
CLOSED_PORTS = ("-t", "none", "-u", "none", "-T", "none", "-U", "none", "--no-map-gw")


def _build_pasta_command(pid: int) -> list[str]:
    root = ["--runas", "0:0"] if os.geteuid() == 0 else []  # otherwise it becomes the user nobody
    dns = ["--dns-forward", NAMESERVER]
    return [
        "pasta",
        *root,
        "--foreground",
        "--quiet",
        "--config-net",
        *CLOSED_PORTS,
        *dns,
        str(pid),
    ]


def _build_slirp_command(pid: int) -> list[str]:
    return [
        "slirp4netns",
        "--configure",
        "--mtu=65520",
        "--disable-host-loopback",
        str(pid),
        "tap0",
    ]


WAYS = {
    "pasta": NetworkTool(_build_pasta_command, NAMESERVER),
    "slirp4netns": NetworkTool(_build_slirp_command, "10.0.2.3"),
}


def find_network_tool() -> NetworkTool:
    """Return the first tool that is installed. Raises :class:`EmulatorError` if there is none."""
    for name, route in WAYS.items():
        if shutil.which(name):
            return route
    raise EmulatorError(
        "--internet: jobs have their own network, and neither pasta (package passt) nor "
        "slirp4netns is on PATH to let them out: install one of them, e.g. apt install slirp4netns"
    )


LIFELINE_COMMAND = ["/bin/sh", "-c", '"$@" & read -r _; kill -9 $!', "sh"]
"""Shell command that runs another one, and kills it when its own standard input ends. That input
also ends if the emulator is killed.
"""
CREDENTIALS_HOST = "169.254.170.2"
"""Host to which AWS's clients add AWS_CONTAINER_CREDENTIALS_RELATIVE_URI, at port 80."""


@dataclass(frozen=True, slots=True)
class Route:
    """A job's connection to the endpoint. ``url`` is the endpoint's URL, the same inside the job.
    ``admit(socket)`` serves a job's listening socket.

    ``out`` is the tool for access to the internet, or None if the job has none.
    """

    url: str
    admit: Callable[[socket.socket], None]
    out: NetworkTool | None = None

    @property
    def addresses(self) -> list[tuple[str, int]]:
        host, port = urlsplit(self.url).hostname, urlsplit(self.url).port
        if host is None or port is None:
            raise ValueError(f"{self.url!r} names no host and port")
        return [(host, port), (CREDENTIALS_HOST, 80)]


class Doors:
    """The listening sockets of one job, called doors, from their creation by its supervisor to its
    end.

    ``directory`` is the job's directory.
    """

    def __init__(self, route: Route, directory: Path) -> None:
        self._route, self._directory = route, directory
        self._out: subprocess.Popen | None = None
        self._inside: list[socket.socket] = []
        self._own_socket, self._child_socket = socket.socketpair()
        self._thread = threading.Thread(target=self._receive, daemon=True)

    @property
    def descriptor(self) -> int:
        """File descriptor of the supervisor's end of the channel, which the supervisor inherits."""
        return self._child_socket.fileno()

    def build_spec(self) -> dict:
        """Return the part of the supervisor's SPEC about the sockets."""
        return {
            "channel": self.descriptor,
            "addresses": self._route.addresses,
            "internet": self._route.out is not None,
        }

    def write_resolv_conf(self) -> list[list[str]]:
        """Write the job's resolv.conf, and return the command to mount it; [] without internet."""
        if not self._route.out:
            return []
        path = self._directory / "resolv.conf"
        path.write_text(f"nameserver {self._route.out.nameserver}\n")
        return [["mount", "--bind", str(path), "/etc/resolv.conf"]]

    def start_receiving(self, supervisor: int) -> None:
        """Receive the sockets in the background. Call it when the process ``supervisor`` has
        started.
        """
        self._child_socket.close()  # so that our end is closed when the supervisor ends
        self._supervisor = supervisor
        self._thread.start()

    def close(self) -> None:
        """Close every descriptor. Call it when the supervisor has ended, or has never started."""
        self._child_socket.close()
        if self._thread.is_alive():
            self._thread.join()
        self._own_socket.close()
        if self._out:
            self._out.communicate()  # closes its input
        for door in self._inside:
            door.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits in accept()
            door.close()

    def _receive(self) -> None:
        """Receive the sockets from the supervisor, serve them, and start the network tool."""
        _, descriptors, _, _ = socket.recv_fds(self._own_socket, 64, len(self._route.addresses))
        if descriptors and self._route.out:  # so the supervisor has set up its network
            with (self._directory / "internet.log").open("w") as log:
                command = [*LIFELINE_COMMAND, *self._route.out.command(self._supervisor)]
                self._out = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
                )
        for descriptor in descriptors:
            door = socket.socket(fileno=descriptor)
            self._inside.append(door)
            self._route.admit(door)
