"""Pull the content of this instance's units from the sorted runs of all instances."""

import itertools
import logging
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from steps.shard import shard_progress
from steps.shard.exchange import INTERVAL, Peers
from steps.shard.raw_objects import stem
from steps.shard.read_object import RUN_BYTES
from steps.shard.shard_object import ShardObject
from steps.shard.shard_plan import Plan
from steps.shard.shard_progress import Record, RunFile
from steps.shard.sorted_runs import KEYS, RunWriter
from steps.shard.survey import Survey, ranges, shares
from trainyard.common.errors import TrainyardError
from trainyard.common.hashes import json_sha256

log = logging.getLogger(__name__)

FOLDER = "pulled"
"""Folder of the pulled runs, below those that this instance has read itself."""

Span = tuple[str, int, int]
"""First folder, or "" for all of them, and a range of hashes."""


class Pulled(Record):
    """Runs pulled from one instance, each with its first folder."""

    runs: list[tuple[str, RunFile]]


def pull(found: Survey, peers: Peers, plan: Plan, processes: int) -> list[tuple[str, int]]:
    """Pull all content of this instance's units; return the runs, each with the rank of an object
    in its first folder.

    Raises:
        TrainyardError: an instance is silent for too long, or has failed; or what was pulled is
            damaged, and others do not have it any more.
    """
    hosts, number = peers.cluster.hosts, peers.cluster.number
    units = shares(found.units(plan), len(hosts))[number]
    work = _Pulling(list(_spans(units)), peers, plan)
    work.all = sum(one.bytes for one in units)
    log.info("pulling %.1f MB of records from %d instances", work.all / 1e6, len(hosts))
    (plan.scratch / FOLDER).mkdir(exist_ok=True)
    # Each begins with itself and its next one, so that not all of them ask the first.
    order = [*hosts[number:], *hosts[:number]]
    done = {host: runs for host in order if (runs := work.done(host)) is not None}
    work.remove_others(done.values())
    missing = [host for host in order if host not in done]
    if missing and peers.passed:
        raise TrainyardError(
            f"{plan.scratch / FOLDER}: records that were pulled are missing or damaged, and the "
            "other instances have removed theirs; empty the output folder, start all instances"
        )
    with ThreadPoolExecutor(min(processes, len(order))) as pool:
        done |= zip(missing, pool.map(work.pull, missing), strict=True)
    rank = {
        one.name.split("/")[0] if plan.by_folder else "": at for at, one in enumerate(found.objects)
    }
    return [(f"{FOLDER}/{run.name}", rank[name]) for host in order for name, run in done[host]]


class _Pulling:
    """Pulls spans of content from one instance after the other, in several threads."""

    def __init__(self, spans: Sequence[Span], peers: Peers, plan: Plan) -> None:
        self.all = self._there = 0
        """Bytes of content that are to be pulled, about, and that are here."""
        self._spans, self._peers, self._plan = spans, peers, plan
        self._identity = {**peers.corpus, "spans": json_sha256(spans)}
        self._lock, self._logged = threading.Lock(), time.monotonic()

    def done(self, host: str) -> list[tuple[str, RunFile]] | None:
        """Return the runs that were pulled before, if all are as they were written."""
        stem_ = f"{FOLDER}-from-{host}"
        one = shard_progress.read(Pulled, stem_, self._identity, self._plan.progress)
        folder = self._plan.scratch / FOLDER
        if one and all(shard_progress.is_whole(folder / run.name, run) for _, run in one.runs):
            self._count(sum(run.bytes for _, run in one.runs))
            return one.runs
        return None

    def remove_others(self, kept: Iterable[Sequence[tuple[str, RunFile]]]) -> None:
        """Delete runs that were begun, or belong to other spans."""
        names = {run.name for runs in kept for _, run in runs}
        for path in (self._plan.scratch / FOLDER).iterdir():
            if path.name not in names:
                path.unlink()

    def pull(self, host: str) -> list[tuple[str, RunFile]]:
        """Pull all spans from an instance, and write down that they are here."""
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
        record = Pulled(identity=self._identity, runs=runs)
        shard_progress.write(record, f"{FOLDER}-from-{host}", plan.progress)
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
