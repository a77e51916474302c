"""A way out of a job's network, where its user asks for one: ``pasta`` or ``slirp4netns``.

Neither needs rights: they are a user's network stack, and end with the job. This machine's own
loopback stays out of reach.
"""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass

from trainyard.common.errors import EmulatorError


@dataclass(frozen=True, slots=True)
class Way:
    """``command(pid)`` gives the namespaces of process ``pid`` a way out, until it is killed.

    ``nameserver``: whom to ask for names in there.
    """

    command: Callable[[int], list[str]]
    nameserver: str


NAMESERVER = "192.0.2.53"
"""Where pasta takes questions, for this machine's own nameserver: an address that is nobody's."""
CLOSED = ("-t", "none", "-u", "none", "-T", "none", "-U", "none", "--no-map-gw")


def _pasta(pid: int) -> list[str]:
    root = ["--runas", "0:0"] if os.geteuid() == 0 else []  # else it becomes nobody, and may not
    dns = ["--dns-forward", NAMESERVER]
    return ["pasta", *root, "--foreground", "--quiet", "--config-net", *CLOSED, *dns, str(pid)]


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
    """The first of the two that is there. Raises :class:`EmulatorError` where none is."""
    for name, found in WAYS.items():
        if shutil.which(name):
            return found
    raise EmulatorError(
        "--internet: jobs have a network of their own, and neither pasta (package passt) nor "
        "slirp4netns is on PATH to let them out: install one of them, e.g. apt install slirp4netns"
    )
