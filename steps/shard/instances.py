"""The instances of the job: their names, and where the first of them listens to the others."""

import json
import logging
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainyard.common.hashes import json_sha256

log = logging.getLogger(__name__)

PORTS = range(10_000, 30_000)
"""Ports that a head listens at, below those that the system gives to anyone."""
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Instances:
    """This instance among those of the job."""

    host: str
    hosts: Sequence[str]
    """Names of all instances, sorted; the first is the head of their Ray cluster."""
    head: str = LOOPBACK
    """Name of the head, or the loopback address if nobody knows the names."""
    port: int = 0
    """Where the head listens."""
    job: str = ""
    """The job's ARN, which no other job has."""

    @property
    def address(self) -> str:
        """Return this instance's own address."""
        return LOOPBACK if self.head == LOOPBACK else resolved(self.host) or LOOPBACK


def read(root: Path) -> Instances:
    """Read SageMaker's resourceconfig.json; without it (outside SageMaker) there is one instance.

    The instances are processes of one machine if nobody knows their names; so the head's port
    differs by job.
    """
    path, about = root / "config/resourceconfig.json", root / "config/processingjobconfig.json"
    if not path.is_file():
        log.info("%s: is missing, so this is the only instance", path)
        return Instances("algo-1", ["algo-1"])
    content = json.loads(path.read_bytes())
    host, hosts = content["current_host"], sorted(content["hosts"])
    job = json.loads(about.read_bytes())["ProcessingJobArn"] if about.is_file() else ""
    port = PORTS[int(json_sha256(job)[:8], 16) % len(PORTS)]
    own = resolved(host)
    several = own is not None and not own.startswith("127.")  # Debian gives its own name 127.0.1.1
    return Instances(host, hosts, hosts[0] if several else LOOPBACK, port, job)


def resolved(host: str) -> str | None:
    """Return the address of a name; None if nobody knows it."""
    try:
        return socket.gethostbyname(host)
    except OSError:
        return None
