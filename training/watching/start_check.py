"""Health check at the start (experimental: no GPU has run it): seconds of matrix products and
all-reduces that reveal a GPU or machine that is slow or computes wrongly, and a disabled EFA,
before hours are spent.
"""

import logging
import socket
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median_high
from typing import Literal

import torch
import torch.distributed as dist

from training.strategies.ranks import Ranks
from training.watching import device_speed
from trainyard.common.errors import TrainingError

log = logging.getLogger(__name__)

OF_OTHERS = 0.85
"""Lowest acceptable speed relative to the median of the job's GPUs of the same kind. Healthy ones
differ by up to 8 % (Sinha et al. 2022, "Not All GPUs Are Created Equal", SGEMM on V100 and
A100)."""

OF_MACHINES = 0.7
"""Lowest acceptable all-reduce speed within a machine, relative to the median of the job's
machines."""

REPLACE = "start the job again: a restart within the job returns to this machine"


@dataclass(frozen=True, slots=True)
class Figures:
    """One rank's measurements.

    Attributes:
        device: the driver's name of the device; empty on a CPU, where nothing is measured.
        matmul: operations per second.
        digest: sum of the bits of a product of the same random numbers on every rank.
        within: bus bandwidth of the all-reduce within its machine, bytes per second; None if alone.
        settings: problems of its machine's EFA settings.
    """

    rank: int
    host: str
    device: str = ""
    matmul: float = 0.0
    digest: int = 0
    within: float | None = None
    settings: tuple[str, ...] = ()


def check(asked: Literal["off", "warn", "stop"], ranks: Ranks) -> None:
    """Measure GPUs and links, check EFA's settings, and report problems on rank 0.

    All ranks call it.

    Raises:
        TrainingError: ``asked`` is stop, and there is a problem; the same on every rank.
    """
    if asked == "off":
        return
    began = time.monotonic()
    hosts = ranks.gather(socket.gethostname())  # all of them, with and without a GPU
    every = ranks.gather(_figures(ranks, hosts))
    found = [*findings(every)]
    if ranks.rank == 0:
        for finding in found:
            log.warning("health: %s", finding)
        if rates := [one.matmul / 1e12 for one in every if one.device]:
            log.info(
                "health: %d GPUs multiply at %.3g to %.3g TFLOP/s; checked in %.1f s",
                *(len(rates), min(rates), max(rates), time.monotonic() - began),
            )
    if asked == "stop" and found:
        raise TrainingError(f"health_check stop: {' | '.join(found[:8])}")


def findings(every: Sequence[Figures]) -> Iterator[str]:
    """Yield all problems: GPUs that compute wrongly or slowly, their links, EFA's settings."""
    kinds: defaultdict[str, list[Figures]] = defaultdict(list)
    for one in every:
        kinds[one.device].append(one)
    for device, alike in kinds.items():
        if device:
            yield from _of_kind(alike)
    if len({one.host for one in every}) > 1:  # a machine alone needs no fabric
        hosts: defaultdict[str, list[str]] = defaultdict(list)
        for one in every:
            for finding in one.settings:
                hosts[finding].append(one.host)
        yield from (f"{', '.join(found)}: {finding}" for finding, found in hosts.items())


def _of_kind(alike: Sequence[Figures]) -> Iterator[str]:
    """Yield problems of GPUs of one kind, on which cuBLAS gives equal bits ("Results
    reproducibility").
    """
    usual, times = Counter(one.digest for one in alike).most_common(1)[0]
    rate = median_high(one.matmul for one in alike)
    for one in alike:
        name = f"rank {one.rank} ({one.device} of {one.host})"
        if one.digest != usual and times > len(alike) / 2:
            yield f"{name} computes wrong: its product is not that of the other GPUs; {REPLACE}"
        elif one.matmul < OF_OTHERS * rate:
            yield (
                f"{name} is slow: it multiplies at {one.matmul / 1e12:.3g} TFLOP/s, the median of "
                f"{len(alike)} such GPUs is {rate / 1e12:.3g}; {REPLACE}"
            )
    links = {one.host: one.within for one in alike if one.within is not None}
    for host, found in links.items():
        if found < OF_MACHINES * (among := median_high(links.values())):
            yield (
                f"the GPUs of {host} exchange slowly: all-reduce at {found / 1e9:.3g} GB/s, the "
                f"median of {len(links)} machines is {among / 1e9:.3g}; look at nvidia-smi nvlink "
                f"-s there, and {REPLACE}"
            )


def _figures(ranks: Ranks, hosts: Sequence[str]) -> Figures:
    host, settings = hosts[ranks.rank], tuple[str, ...]()
    if ranks.local_rank == 0:
        settings = tuple(device_speed.findings(device_speed.instance_type()))
    if ranks.device.type != "cuda":
        return Figures(ranks.rank, host, settings=settings)
    within = links(ranks, hosts)
    rate, digest = device_speed.matmul(ranks.device)
    torch.cuda.empty_cache()  # so that metric lines report the training's own peak
    torch.cuda.reset_peak_memory_stats(ranks.device)
    device = torch.cuda.get_device_name(ranks.device)
    return Figures(ranks.rank, host, device, rate, digest, within, settings)


def links(ranks: Ranks, hosts: Sequence[str], payload: int = device_speed.PAYLOAD) -> float | None:
    """Return the bus bandwidth of the all-reduce within this rank's machine; None for a rank alone
    there, or a library with a single group of ranks (``Ranks.subgroups``).
    """
    here = [rank for rank, host in enumerate(hosts) if host == hosts[ranks.rank]]
    if len(here) == 1 or (len(here) < ranks.world and not ranks.subgroups):
        return None
    with _group(here) as group:
        return device_speed.all_reduce(ranks.device, group, payload)


@contextmanager
def _group(members: list[int]) -> Iterator[dist.ProcessGroup]:
    """Context with a group created by its members only, so that machines do not wait for each
    other.
    """
    group = dist.new_group(members, use_local_synchronization=True)
    try:
        yield group
    finally:
        dist.destroy_process_group(group)
