"""The instances of the job: their names, and where each listens to the others."""

import json
import logging
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainyard.common.hashes import json_sha256

log = logging.getLogger(__name__)

PORTS = range(10_000, 30_000)
"""Ports that instances listen at, below those that the system gives to anyone."""


@dataclass(frozen=True)
class Cluster:
    """This instance among those of the job."""

    host: str
    hosts: Sequence[str]
    """Names of all instances, sorted."""
    addresses: Sequence[str] = ()
    """``name:port`` of each instance."""
    patience: float = 0
    """Seconds that an instance may be silent before the others give up: it may not have begun yet,
    or be started again."""

    @property
    def number(self) -> int:
        return self.hosts.index(self.host)

    def address(self, host: str) -> str:
        return self.addresses[self.hosts.index(host)]


def read(root: Path, addresses: Sequence[str], patience: float) -> Cluster:
    """Read SageMaker's resourceconfig.json; without it (outside SageMaker) there is one instance.

    ``addresses``: where the instances listen; if empty, at their names, or on this machine if
    nobody knows these. The ports differ by instance and by job, since instances may be processes
    of one machine.
    """
    path, about = root / "config/resourceconfig.json", root / "config/processingjobconfig.json"
    if not path.is_file():
        log.info("%s: is missing, so this is the only instance", path)
        return Cluster("algo-1", ["algo-1"])
    content = json.loads(path.read_bytes())
    host, hosts = content["current_host"], sorted(content["hosts"])
    job = json.loads(about.read_bytes())["ProcessingJobArn"] if about.is_file() else ""
    first = int(json_sha256(job)[:8], 16) % (len(PORTS) - len(hosts))
    names = hosts if resolved(host) else ["127.0.0.1"] * len(hosts)
    usual = [f"{name}:{PORTS[first + at]}" for at, name in enumerate(names)]
    return Cluster(host, hosts, addresses or usual, patience)


def resolved(host: str) -> str | None:
    """Return the address of a name; None if nobody knows it."""
    try:
        return socket.gethostbyname(host)
    except OSError:
        return None
