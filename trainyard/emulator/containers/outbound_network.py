"""The way from a job's network to the internet, if the user asks for it: ``pasta`` or
``slirp4netns``.

Neither needs privileges: they are a network stack in user space, and end with the job. This
machine's own loopback stays out of reach.
"""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass

from trainyard.common.errors import EmulatorError


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
