"""This process's rank, and the communication between the ranks."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import distributed_c10d

from training.cpu_cores import limit_torch_threads
from training.in_place_restart import Attempt
from training.watching import flight_recorder
from trainyard.common.errors import LostRankError, TrainingError

NETWORK = 60  # longest wait for a response of the store, in seconds
LAUNCHERS = (
    ("RANK", "LOCAL_RANK", "WORLD_SIZE"),  # torchrun
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"),  # Open MPI
)
"""The launchers' environment variables for rank, local rank and world size."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process's rank among the processes of the job, and its device."""

    rank: int
    local_rank: int
    world: int
    device: torch.device

    def sum(self, values: Tensor) -> Tensor:
        """Return the elementwise sum over all ranks, computed in place. Collective: call it on
        every rank.
        """
        if self.world > 1:
            dist.all_reduce(values)
        return values

    def gather(self, value: Any) -> list[Any]:
        """Return each rank's value, in the order of the ranks. Collective: call it on every
        rank.
        """
        if self.world == 1:
            return [value]
        every: list[Any] = [None] * self.world
        dist.all_gather_object(every, value)
        return every


def read_ranks(environment: Mapping[str, str] = os.environ) -> tuple[int, int, int]:
    """Return (rank, local rank, world size) from the launcher's variables, or (0, 0, 1) without a
    launcher.

    Raises:
        TrainingError: some of a launcher's variables are missing.
    """
    for names in LAUNCHERS:
        if names[0] in environment:
            if missing := [name for name in names if name not in environment]:
                raise TrainingError(
                    f"{names[0]} is set, but {', '.join(missing)} is not: start the job with "
                    "torchrun or mpirun, which set all of them"
                )
            rank, local_rank, world = (int(environment[name]) for name in names)
            return rank, local_rank, world
    return 0, 0, 1


def check_machines(world: int, environment: Mapping[str, str] = os.environ) -> None:
    """Check, under mpirun, that every machine of the job has as many ranks as this one.

    Raises:
        TrainingError: the numbers differ; an idle machine would cost money and do nothing.
    """
    local_ranks, machines = (
        environment.get(n) for n in ("OMPI_COMM_WORLD_LOCAL_SIZE", "SM_HOST_COUNT")
    )
    if local_ranks and machines and int(local_ranks) * int(machines) != world:
        raise TrainingError(
            f"mpirun started {world} ranks, {local_ranks} of them on this machine, but the job has "
            f"{machines} machines: train.instance_count is not that of the pipeline definition"
        )


def read_meeting_address(name: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return ``MASTER_ADDR`` or ``MASTER_PORT``, the address at which rank 0 waits for the others.

    torchrun sets them. mpirun does not, but AWS's MPI driver sets SM_MASTER_ADDR and SM_MASTER_PORT
    on each machine (sagemaker/train/container_drivers), which are used instead.

    Raises:
        TrainingError: neither is set.
    """
    for variable in (name, f"SM_{name}"):
        if variable in environment:
            return environment[variable]
    raise TrainingError(
        f"{name} is not set: start the job with torchrun, or pass rank 0's machine and a free port "
        "to mpirun: -x MASTER_ADDR=... -x MASTER_PORT=..."
    )


@contextmanager
def join_group(timeout_seconds: int, backend: str | None = None) -> Iterator[Ranks]:
    """Context in which this process is in the process group that the launcher's variables describe.

    A process without a launcher is alone and needs no group.

    Raises:
        TrainingError: under mpirun, the address at which the ranks meet is missing.
        LostRankError: the ranks did not meet in time, or this attempt is already over.
    """
    rank, local_rank, world = read_ranks()
    limit_torch_threads()
    cuda = torch.cuda.is_available()
    if cuda:
        torch.cuda.set_device(local_rank % torch.cuda.device_count())
    device = torch.device("cuda", torch.cuda.current_device()) if cuda else torch.device("cpu")
    ranks = Ranks(rank, local_rank, world, device)
    if world == 1 and "RANK" not in os.environ:
        yield ranks
        return
    check_machines(world)
    # torch, ``connect_store`` and the libraries read these names, whatever the launcher calls them.
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        os.environ[name] = read_meeting_address(name)
    _announce_attempt()
    flight_recorder.record_collectives()
    with _limit_timeouts(timedelta(seconds=timeout_seconds)):
        try:
            dist.init_process_group(
                backend or ("cpu:gloo,cuda:nccl" if cuda else "gloo"),
                store=_open_store(rank == 0, timeout_seconds),
                rank=rank,
                world_size=world,
            )
        except RuntimeError as error:
            if not is_lost_peer_error(error):
                raise
            raise LostRankError(
                f"rank {rank} of {world} did not meet the others within {timeout_seconds} s at "
                f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}: {error}"
            ) from error
        try:
            yield ranks
        finally:
            dist.destroy_process_group()


LIMITS = ("default_pg_timeout", "default_pg_nccl_timeout")
"""Variables in which torch keeps the timeout of a group that is created without one."""


@contextmanager
def _limit_timeouts(timeout: timedelta) -> Iterator[None]:
    """Context in which ``timeout`` is the timeout of every process group.

    Otherwise a group that a device mesh creates has torch's own, 10 or 30 minutes, because
    init_device_mesh takes no timeout.
    """
    before = {name: getattr(distributed_c10d, name) for name in LIMITS}
    for name in LIMITS:
        setattr(distributed_c10d, name, timeout)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(distributed_c10d, name, value)


def connect_store(timeout_seconds: float, *, serve: bool = False) -> dist.Store:
    """Open a separate connection to the job's store, which torchrun's agent or rank 0 serves.

    Args:
        serve: whether this process is the one that serves the store.
    """
    return dist.TCPStore(
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        is_master=serve,
        wait_for_workers=False,
        multi_tenant=True,
        timeout=timedelta(seconds=timeout_seconds),
    )


def is_store_served_by_agent() -> bool:
    """Return whether torchrun's agent serves the store, which then survives a restart of the
    ranks.
    """
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def _open_store(first: bool, timeout_seconds: int) -> dist.Store:
    """Return the store in which the ranks of this attempt find each other.

    torch 2.13's own env:// uses the agent's store directly. There, restarted ranks would find the
    addresses of the dead ones, because AWS's driver uses the static rendezvous. So each attempt has
    a prefix of its own.
    """
    store = connect_store(timeout_seconds, serve=first and not is_store_served_by_agent())
    return dist.PrefixStore(f"attempt-{Attempt.from_environment().number}", store)


def is_lost_peer_error(error: BaseException | None) -> bool:
    """Return whether ``error`` comes from a collective that failed; gloo raises a RuntimeError.

    Some of gloo's messages contain its file name, but not that of a second collective, which the
    first one's timeout ended (``Application timeout caused pair closure``).
    """
    while error is not None:
        if isinstance(error, dist.DistError):
            return True
        lost = "gloo" in str(error).lower() or "pair closure" in str(error)
        if lost and isinstance(error, RuntimeError):
            return True
        error = error.__cause__
    return False


def build_started_key(attempt: int) -> str:
    """Return the store's key under which the ranks of this attempt announce themselves."""
    return f"{attempt}/started"


def _announce_attempt() -> None:
    """Announce this attempt before the ranks meet; raise if the attempt is already over.

    Each machine's agent counts attempts on its own. If the ranks of one machine died again before
    the other machines noticed the first failure, that machine is ahead, and ranks of different
    attempts never meet.

    Raises:
        LostRankError: another machine is in a later attempt; torchrun then restarts this one, too.
    """
    attempt = Attempt.from_environment()
    if not is_store_served_by_agent():
        return
    store = connect_watchdog_store()
    store.set(build_started_key(attempt.number), "")
    if attempt.will_restart and store.check([build_started_key(attempt.number + 1)]):
        raise LostRankError(f"attempt {attempt.number} is over: another machine is in a later one")


def connect_watchdog_store() -> dist.Store:
    """Return the store in which watchdogs write; an agent's store survives this attempt."""
    return dist.PrefixStore("watchdog", connect_store(NETWORK))
