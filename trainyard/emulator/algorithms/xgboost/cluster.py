"""The hosts of one training: XGBoost's collective between them, whose tracker runs on the first."""

import contextlib
import os
import socket
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from xgboost import collective
from xgboost.core import XGBoostError
from xgboost.tracker import RabitTracker

PORT = 9099  # the container's
PATIENCE = 120.0  # seconds until the first host must listen
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Cluster:
    """``size`` hosts, of which the master writes the model."""

    size: int
    is_master: bool

    def any(self, value: bool) -> bool:
        """Whether it is true on one of the hosts."""
        return bool(self.largest(int(value)))

    def largest(self, value: int) -> int:
        """The largest of the hosts' values."""
        if self.size == 1:
            return value
        found = collective.allreduce(np.array([value], np.int64), collective.Op.MAX)
        return int(found[0])


@contextlib.contextmanager
def joined(hosts: list[str], own: str, say: Callable[[str], None]) -> Iterator[Cluster]:
    """The cluster of ``hosts``, ``own`` one of them, while the block runs."""
    hosts = sorted(hosts)
    if len(hosts) == 1:
        yield Cluster(1, True)
        return
    address, port = _place(hosts)
    say(f"Distributed node training with {len(hosts)} hosts: {hosts}")
    with contextlib.ExitStack() as stack:
        tracker = None
        if own == hosts[0]:
            tracker = RabitTracker(len(hosts), address, port, sortby="task")
            tracker.start()
            stack.callback(tracker.free)
        context = _connected(address, port, hosts.index(own))
        try:
            yield Cluster(len(hosts), own == hosts[0])
        finally:
            context.__exit__(None, None, None)
        if tracker:
            tracker.wait_for(timeout=10)


def _place(hosts: list[str]) -> tuple[str, int]:
    """Where the tracker is. Hosts that share this machine's network share its ports, too."""
    try:
        return socket.gethostbyname(hosts[0]), PORT
    except OSError:
        name = os.environ.get("TRAINING_JOB_NAME", "")
        return LOOPBACK, 20000 + zlib.crc32(name.encode()) % 10000


def _connected(address: str, port: int, task: int) -> collective.CommunicatorContext:
    """A refused connection is tried again: the first host may not listen yet."""
    end = time.monotonic() + PATIENCE
    while True:
        context = collective.CommunicatorContext(
            dmlc_communicator="rabit",
            dmlc_tracker_uri=address,
            dmlc_tracker_port=port,
            dmlc_task_id=str(task),
        )
        try:
            context.__enter__()
            return context
        except XGBoostError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)
