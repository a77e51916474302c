"""Pull the content of this instance's units from the sorted runs of all instances."""

import itertools
import logging
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from steps.shard.exchange import INTERVAL, Peers
from steps.shard.raw_objects import stem
from steps.shard.read_object import RUN_BYTES
from steps.shard.shard_object import ShardObject
from steps.shard.shard_plan import Plan
from steps.shard.shard_progress import RunFile
from steps.shard.sorted_runs import KEYS, RunWriter
from steps.shard.survey import Survey, ranges, shares

log = logging.getLogger(__name__)

FOLDER = "pulled"
"""Folder of the pulled runs, below those that this instance has read itself."""

Span = tuple[str, int, int]
"""First folder, or "" for all of them, and a range of hashes."""


def pull(found: Survey, peers: Peers, plan: Plan, processes: int) -> list[tuple[str, int]]:
    """Pull all content of this instance's units; return the runs, each with the rank of an object
    in its first folder.

    Raises:
        TrainyardError: an instance is silent for too long, or has failed.
    """
    hosts, number = peers.cluster.hosts, peers.cluster.number
    units = shares(found.units(plan), len(hosts))[number]
    work = _Pulling(list(_spans(units)), peers, plan)
    work.all = sum(one.bytes for one in units)
    log.info("pulling %.1f MB of records from %d instances", work.all / 1e6, len(hosts))
    (plan.scratch / FOLDER).mkdir(exist_ok=True)
    # Each begins with itself and its next one, so that not all of them ask the first.
    order = [*hosts[number:], *hosts[:number]]
    with ThreadPoolExecutor(min(processes, len(order))) as pool:
        pulled = dict(zip(order, pool.map(work.pull, order), strict=True))
    rank = {
        one.name.split("/")[0] if plan.by_folder else "": at for at, one in enumerate(found.objects)
    }
    return [(f"{FOLDER}/{run.name}", rank[name]) for host in order for name, run in pulled[host]]


class _Pulling:
    """Pulls spans of content from one instance after the other, in several threads."""

    def __init__(self, spans: Sequence[Span], peers: Peers, plan: Plan) -> None:
        self.all = self._there = 0
        """Bytes of content that are to be pulled, about, and that are here."""
        self._spans, self._peers, self._plan = spans, peers, plan
        self._lock, self._logged = threading.Lock(), time.monotonic()

    def pull(self, host: str) -> list[tuple[str, RunFile]]:
        """Pull all spans from an instance; return the runs, each with its first folder."""
        plan = self._plan
        runs = []
        for span in self._spans:
            limit = min(RUN_BYTES, plan.shard_bytes)
            name = stem(f"{host}\n{span}", plan.settings)
            writer = RunWriter(plan.scratch / FOLDER, name, limit=limit, unique=False)
            for batch in self._content(host, span):
                if len(batch):
                    writer.append(batch)
                    self._count(
                        int(batch.column(KEYS.index("size")).to_numpy().sum(dtype=np.int64))
                    )
            runs += [(span[0], run) for run in writer.close()]
        return runs

    def _content(self, host: str, span: Span) -> Iterator:
        if host == self._peers.cluster.host and self._peers.runs:
            return self._peers.runs.content(*span)
        return self._peers.content(host, span)

    def _count(self, size: int) -> None:
        with self._lock:
            self._there += size
            if time.monotonic() - self._logged >= INTERVAL:
                self._logged = time.monotonic()
                log.info("pulled %.1f of %.1f MB of records", self._there / 1e6, self.all / 1e6)


def _spans(units: Sequence[ShardObject]) -> Iterator[Span]:
    """Yield the range of hashes of neighbouring units in each first folder."""
    for folder, some in itertools.groupby(units, key=lambda one: one.folder):
        several = list(some)
        first, last = several[0].number, several[-1].number + 1
        spans = list(ranges(several[0].count, first, last))
        yield folder, spans[0][0], spans[-1][1]
