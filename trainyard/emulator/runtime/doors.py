"""The way from a job's own network to the endpoint: sockets that listen there and are ours.

A job's network has nothing but its loopback. The supervisor, inside, listens at the endpoint's own
address and at the one where containers ask for credentials, and hands the two sockets out; the
emulator answers who connects. No process stands between, and nothing else can be reached.
"""

import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

CREDENTIALS_HOST = "169.254.170.2"
"""Where AWS's clients ask for AWS_CONTAINER_CREDENTIALS_RELATIVE_URI, at port 80."""


@dataclass(frozen=True, slots=True)
class Route:
    """``url``: the endpoint's, the same inside. ``admit`` serves a listening socket of a job's."""

    url: str
    admit: Callable[[socket.socket], None]

    @property
    def addresses(self) -> list[tuple[str, int]]:
        host, port = urlsplit(self.url).hostname, urlsplit(self.url).port
        if host is None or port is None:
            raise ValueError(f"{self.url!r} names no host and port")
        return [(host, port), (CREDENTIALS_HOST, 80)]


class Doors:
    """The sockets of one job, from their making by its supervisor to its end."""

    def __init__(self, route: Route) -> None:
        self._route = route
        self._inside: list[socket.socket] = []
        self._here, self._there = socket.socketpair()
        self._thread = threading.Thread(target=self._receive, daemon=True)

    @property
    def descriptor(self) -> int:
        """Of the supervisor's end, which it inherits."""
        return self._there.fileno()

    def spec(self) -> dict:
        """What the supervisor has to know."""
        return {"channel": self.descriptor, "addresses": self._route.addresses}

    def open(self) -> None:
        """To be called when the supervisor has started; returns at once."""
        self._there.close()  # so that ours ends with the supervisor's
        self._thread.start()

    def close(self) -> None:
        """To be called when the supervisor is gone, or never started: frees every descriptor."""
        self._there.close()
        if self._thread.is_alive():
            self._thread.join()
        self._here.close()
        for door in self._inside:
            door.shutdown(socket.SHUT_RDWR)  # wakes who waits in accept()
            door.close()

    def _receive(self) -> None:
        _, descriptors, _, _ = socket.recv_fds(self._here, 64, len(self._route.addresses))
        for descriptor in descriptors:
            door = socket.socket(fileno=descriptor)
            self._inside.append(door)
            self._route.admit(door)
