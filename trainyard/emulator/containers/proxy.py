"""The way from a job's own network to the endpoint: sockets that listen there, served here.

A job's network has only its loopback. The supervisor, inside, listens at the endpoint's own address
and at the address of AWS's container credentials, and passes the two sockets out; the emulator
answers the connections. There is no process in between, and nothing else can be reached.
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

# The way from a job's network to the internet, if the user asks for it: ``pasta`` or
# ``slirp4netns``.
#
# Neither needs privileges: they are a network stack in user space, and end with the job. This
# machine's own loopback stays out of reach.


@dataclass(frozen=True, slots=True)
class Way:
    """A tool for outbound traffic. ``command(pid)`` connects the namespaces of process ``pid`` to
    the outside, until it is killed.

    ``nameserver``: address of the nameserver inside.
    """

    command: Callable[[int], list[str]]
    nameserver: str


NAMESERVER = "192.0.2.53"
"""Address at which pasta forwards questions to this machine's nameserver; reserved, so unused
elsewhere."""
CLOSED_PORTS = ("-t", "none", "-u", "none", "-T", "none", "-U", "none", "--no-map-gw")


def _pasta(pid: int) -> list[str]:
    root = ["--runas", "0:0"] if os.geteuid() == 0 else []  # else it becomes nobody, without rights
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


def _slirp(pid: int) -> list[str]:
    return [
        "slirp4netns",
        "--configure",
        "--mtu=65520",
        "--disable-host-loopback",
        str(pid),
        "tap0",
    ]


WAYS = {"pasta": Way(_pasta, NAMESERVER), "slirp4netns": Way(_slirp, "10.0.2.3")}


def way() -> Way:
    """Return the first tool that is installed. Raises :class:`EmulatorError` if none is."""
    for name, route in WAYS.items():
        if shutil.which(name):
            return route
    raise EmulatorError(
        "--internet: jobs have their own network, and neither pasta (package passt) nor "
        "slirp4netns is on PATH to let them out: install one of them, e.g. apt install slirp4netns"
    )


LIFELINE_COMMAND = ["/bin/sh", "-c", '"$@" & read -r _; kill -9 $!', "sh"]
"""Shell command that runs another until its own input ends, also when the emulator is killed."""
CREDENTIALS_HOST = "169.254.170.2"
"""Host of AWS_CONTAINER_CREDENTIALS_RELATIVE_URI for AWS's clients, at port 80."""


@dataclass(frozen=True, slots=True)
class Route:
    """A job's connections. ``url``: the endpoint's, the same inside. ``admit``: serves a job's
    listening socket.

    ``out``: the way to the internet, if the job has one.
    """

    url: str
    admit: Callable[[socket.socket], None]
    out: Way | None = None

    @property
    def addresses(self) -> list[tuple[str, int]]:
        host, port = urlsplit(self.url).hostname, urlsplit(self.url).port
        if host is None or port is None:
            raise ValueError(f"{self.url!r} names no host and port")
        return [(host, port), (CREDENTIALS_HOST, 80)]


class Doors:
    """The sockets of one job, from their creation by its supervisor to its end.

    ``directory``: the job's directory.
    """

    def __init__(self, route: Route, directory: Path) -> None:
        self._route, self._directory = route, directory
        self._out: subprocess.Popen | None = None
        self._inside: list[socket.socket] = []
        self._own_socket, self._child_socket = socket.socketpair()
        self._thread = threading.Thread(target=self._receive, daemon=True)

    @property
    def descriptor(self) -> int:
        """File descriptor of the supervisor's end, which it inherits."""
        return self._child_socket.fileno()

    def spec(self) -> dict:
        """Return the part of the supervisor's SPEC about the sockets."""
        return {
            "channel": self.descriptor,
            "addresses": self._route.addresses,
            "internet": self._route.out is not None,
        }

    def setup(self) -> list[list[str]]:
        """Return mount commands for the job."""
        if not self._route.out:
            return []
        path = self._directory / "resolv.conf"
        path.write_text(f"nameserver {self._route.out.nameserver}\n")
        return [["mount", "--bind", str(path), "/etc/resolv.conf"]]

    def open(self, supervisor: int) -> None:
        """Receive the sockets; to be called when the process ``supervisor`` has started. Returns at
        once.
        """
        self._child_socket.close()  # so that ours ends with the supervisor's
        self._supervisor = supervisor
        self._thread.start()

    def close(self) -> None:
        """Free every descriptor; to be called when the supervisor has ended, or never started."""
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
        _, descriptors, _, _ = socket.recv_fds(self._own_socket, 64, len(self._route.addresses))
        if descriptors and self._route.out:  # so there are namespaces
            with (self._directory / "internet.log").open("w") as log:
                command = [*LIFELINE_COMMAND, *self._route.out.command(self._supervisor)]
                self._out = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
                )
        for descriptor in descriptors:
            door = socket.socket(fileno=descriptor)
            self._inside.append(door)
            self._route.admit(door)
