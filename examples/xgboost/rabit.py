"""Connect XGBoost's workers through Rabit's tracker, by the launcher's environment variables.

torchrun   RANK, WORLD_SIZE, MASTER_ADDR: rank 0 starts the tracker, and the others learn its
           address from torch's store, which the launcher has already opened
none       SM_HOSTS: one process per node, in an image that need not have torch; the first host
           starts the tracker at a fixed port
"""

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from xgboost.collective import CommunicatorContext
from xgboost.core import XGBoostError
from xgboost.tracker import RabitTracker

PORT = 9099  # the port of AWS's own XGBoost container
PATIENCE = 120.0  # seconds until the tracker must listen


@contextmanager
def join_communicator() -> Iterator[tuple[int, int]]:
    """Join the communicator of all processes in the block; yield (rank, world size)."""
    if "RANK" in os.environ:
        from torch.distributed import rendezvous

        # Kept in a name: if no launcher serves the store, it ends with rank 0's last reference.
        store, rank, world = next(rendezvous("env://"))
        tracker, settings = _share_settings_by_store(store, rank, world)
    else:
        rank, world, tracker, settings = _derive_settings_from_hosts()
    with _connect_communicator({"dmlc_task_id": str(rank), **settings}):
        yield rank, world
    if tracker:
        tracker.wait_for(timeout=10)


TrackerSettings = dict[str, str | int]
"""Settings with which a worker connects to the tracker."""


def _share_settings_by_store(
    store: Any, rank: int, world: int
) -> tuple[RabitTracker | None, TrackerSettings]:
    # The store outlives a restart.
    key = f"rabit/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
    tracker = None
    if rank == 0:
        tracker = _start_tracker(world, socket.gethostbyname(os.environ["MASTER_ADDR"]), 0)
        store.set(key, json.dumps(tracker.worker_args()))
    return tracker, json.loads(store.get(key))


def _derive_settings_from_hosts() -> tuple[int, int, RabitTracker | None, TrackerSettings]:
    hosts = sorted(json.loads(os.environ["SM_HOSTS"]))
    rank = hosts.index(os.environ["SM_CURRENT_HOST"])
    address = socket.gethostbyname(hosts[0])
    tracker = _start_tracker(len(hosts), address, PORT) if rank == 0 else None
    return rank, len(hosts), tracker, {"dmlc_tracker_uri": address, "dmlc_tracker_port": PORT}


def _start_tracker(world: int, address: str, port: int) -> RabitTracker:
    """Start the tracker. Ranks follow the task ids, so the first process has the first rows."""
    tracker = RabitTracker(n_workers=world, host_ip=address, port=port, sortby="task")
    tracker.start()
    return tracker


@contextmanager
def _connect_communicator(settings: TrackerSettings) -> Iterator[None]:
    """Join the communicator in the block; retry for PATIENCE seconds until the tracker listens."""
    end = time.monotonic() + PATIENCE
    context = CommunicatorContext(dmlc_communicator="rabit", **settings)
    while True:
        try:
            context.__enter__()
            break
        except XGBoostError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)
    try:
        yield
    finally:
        context.__exit__(None, None, None)
