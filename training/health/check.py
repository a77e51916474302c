"""The check at the start: seconds of matrix products and all-reduces before hours are spent."""

import logging
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
import torch.distributed as dist

from training.health import efa, measure
from training.health.figures import Figures, findings, told
from training.strategies.ranks import Ranks
from trainyard.common.errors import TrainingError

log = logging.getLogger(__name__)


def check(asked: Literal["off", "warn", "stop"], ranks: Ranks) -> None:
    """Measure GPUs and links, look at EFA's settings, and say on rank 0 what is wrong.

    All ranks call it. On a CPU nothing is measured; EFA's settings are looked at where the
    instance type is known.

    Raises:
        TrainingError: ``stop``, and something is surely wrong; the same on every rank.
    """
    if asked == "off":
        return
    began = time.monotonic()
    every = ranks.gather(_figures(ranks))
    found = findings(every)
    if ranks.rank == 0:
        for finding in found:
            log.warning("health: %s", finding)
        if line := told(every):
            log.info("health: %s; checked in %.1f s", line, time.monotonic() - began)
    if asked == "stop" and (sure := [str(finding) for finding in found if finding.sure]):
        raise TrainingError(
            f"health_check stop, and {len(sure)} of the machines' faults are sure: "
            f"{' | '.join(sure[:8])}"
        )


def _figures(ranks: Ranks) -> Figures:
    host, instance = socket.gethostname(), efa.instance_type()
    settings = ()
    if ranks.local_rank == 0 and instance:
        settings = tuple(efa.findings(instance, os.environ, efa.look()))
    cuda = ranks.device.type == "cuda"
    within, over = links(ranks, host) if cuda else (None, None)
    rate, digest = measure.matmul(ranks.device) if cuda else (0.0, 0)
    one = Figures(
        rank=ranks.rank,
        host=host,
        local_rank=ranks.local_rank,
        instance=instance,
        device=torch.cuda.get_device_name(ranks.device) if cuda else "",
        matmul=rate,
        digest=digest,
        wrong=measure.wrong(ranks.device) if cuda else 0,
        within=within,
        over=over,
        gpus=torch.cuda.device_count(),
        settings=settings,
    )
    if cuda:  # the training's own peak is what its metric lines have
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(ranks.device)
    return one


def links(
    ranks: Ranks, host: str, payload: int = measure.PAYLOAD
) -> tuple[float | None, float | None]:
    """Bus bandwidth of the all-reduce within this rank's machine, and over all; None: no other.

    Where all ranks are on one machine it is the same. A library that has but one group of ranks
    (``Ranks.subgroups``) is measured over all.
    """
    if ranks.world == 1:
        return None, None
    hosts = ranks.gather(host)
    here = [rank for rank, other in enumerate(hosts) if other == host]
    over = measure.all_reduce(ranks.device, payload=payload)
    if len(here) == ranks.world:
        return over, None
    if len(here) == 1 or not ranks.subgroups:
        return None, over
    with _group(here) as group:
        return measure.all_reduce(ranks.device, group, payload), over


@contextmanager
def _group(members: list[int]) -> Iterator[dist.ProcessGroup]:
    """A group that only its members make, so that many machines do not wait for each other."""
    group = dist.new_group(members, use_local_synchronization=True)
    try:
        yield group
    finally:
        dist.destroy_process_group(group)
