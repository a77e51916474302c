"""Shard on several instances by Ray: the program that the first of them runs.

Each instance reads its part of the raw objects into sorted runs. Ranges of hashes are surveyed for
equal records; then each record that stays goes to the instance that packs its unit. What is on the
way at once is bounded, so the object store need not spill. The dataset is that of one instance.
"""

import argparse
import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import OutOfMemoryError, RayError, RayTaskError

from steps.shard import arguments, raw_objects, ray_tasks, survey
from steps.shard.manifests import check_share
from steps.shard.pool import Pace
from steps.shard.pool_results import check_data
from steps.shard.raw_objects import RawObject, ShardObject
from steps.shard.ray_cluster import AGAIN, Node, keep_loopback
from steps.shard.ray_tasks import OwnRun, Place, Seen, Span
from steps.shard.settings import COPIES
from steps.shard.shard_plan import Plan
from steps.shard.shard_progress import PackedUnit, Read
from steps.shard.survey import Survey
from steps.shard.survey_pass import Corpus
from trainyard.common.errors import DataError, TrainyardError

log = logging.getLogger(__name__)

WAVE_BYTES = 256 * 10**6
"""Content that each instance sends at once; two such waves are on the way."""
LOOK = 5
"""Seconds between two looks at which instances are there."""
TELL = 30
"""Seconds in which the instances are told how the job has ended."""


def lead(node: Node, options: argparse.Namespace, patience: float) -> None:
    """Start the head, wait for the other instances, and shard on all of them.

    Raises:
        DataError: as ``Program.run``.
        TrainyardError: an instance did not come, or is lost; a worker died; a disk is full.
    """
    hosts = node.instances.hosts
    connect(node)
    places = [Place(host) for host in hosts]
    message = "the job was stopped"
    try:
        _wait_for(hosts, patience)
        Program(places, options, placed=True).run()
        message = ""
    except (RayError, TrainyardError) as error:
        message = str(failure(error))
        raise failure(error) from None
    finally:
        there = [host for host in hosts[1:] if host in ray.cluster_resources()]
        told = [ray_tasks.end.options(resources={host: 1}).remote(message) for host in there]
        ray.wait(told, num_returns=len(told), timeout=TELL) if told else None
        ray.shutdown()


def on_cluster(options: argparse.Namespace) -> None:
    """Shard on the Ray cluster at ``options.address``, whose nodes share input and output."""
    keep_loopback(options.address)
    checkout = Path(__file__).resolve().parents[2]
    code = [str(checkout / room) for room in ("steps", "training", "trainyard")]
    try:
        ray.init(options.address, log_to_driver=False, runtime_env={"py_modules": code})
    except ConnectionError as error:
        raise TrainyardError(f"--address {options.address}: {error}") from None
    try:
        count = sum(1 for one in ray.nodes() if one["Alive"] and one["Resources"].get("CPU"))
        words = tuple(options.words)
        hosts = [f"node-{number + 1:04d}" for number in range(count)]
        Program([Place(host, words) for host in hosts], options, placed=False).run()
    except (RayError, TrainyardError) as error:
        raise failure(error) from None
    finally:
        ray.shutdown()


def failure(error: Exception) -> TrainyardError:
    """Return what a user is told of an error in a task."""
    if isinstance(error, RayTaskError):
        cause = error.cause
        if isinstance(cause, TrainyardError):
            return cause
        if isinstance(cause, RayError):
            return failure(cause)
        return TrainyardError(str(error))
    if isinstance(error, RayError):
        advice = (
            "take an instance type with more memory for each core, or lower shard.processes"
            if isinstance(error, OutOfMemoryError)
            else "see the logs of the instances, and run the step again"
        )
        return TrainyardError(f"{' '.join(str(error).split())[:800]}: {advice}")
    assert isinstance(error, TrainyardError)
    return error


def connect(node: Node) -> None:
    """Start the head, and connect to it.

    Raises:
        TrainyardError: it does not start.
    """
    node.start(head=True)
    try:
        ray.init(
            node.head, log_to_driver=False, logging_level=logging.WARNING,
            _node_ip_address=node.instances.address,
        )  # fmt: skip
    except ConnectionError as error:
        raise TrainyardError(f"{node.head}: {error}") from None


def _wait_for(hosts: Sequence[str], patience: float) -> None:
    """Wait until all instances have joined."""
    start = logged = time.monotonic()
    while missing := [host for host in hosts if host not in ray.cluster_resources()]:
        now = time.monotonic()
        if now - start > patience:
            raise TrainyardError(
                f"{', '.join(missing)}: did not join {hosts[0]} within {patience:,.0f} s; see the "
                "log there, and run the step again. In a VPC the job's security group has to let "
                "its instances reach each other"
            )
        if now - logged >= 10:
            logged = now
            log.info("waiting for %s", ", ".join(missing))
        time.sleep(AGAIN)


class Program:
    """The job on several instances.

    Args:
        placed: whether an instance's tasks have to run there.
    """

    def __init__(
        self, places: Sequence[Place], options: argparse.Namespace, *, placed: bool
    ) -> None:
        self._places, self._options, self._placed = places, options, placed
        self._hosts = [one.host for one in places]
        self._plan: Plan = arguments.plan_of(options, self._hosts[0])

    def run(self) -> None:
        """Shard the raw data.

        Raises:
            DataError: no raw data; objects that cannot be read; too many bad records.
            TrainyardError: a disk has too little room.
        """
        whole, parts = self._objects()
        reads = self._read(parts)
        corpus = Corpus(whole, reads, self._plan)
        check_share(corpus.counts(), self._plan.max_bad_share)
        found = self._survey(corpus)
        arguments.check_inputs(found, self._options.inputs)
        units = survey.shares(found.units(self._plan), len(self._places))
        self._gather(corpus, found, units)
        packed = self._pack(units)
        self._all([
            self._on(place, ray_tasks.finish).remote(place, found, done)
            for place, done in zip(self._places, packed, strict=True)
        ])  # fmt: skip

    def _on(self, place: Place, task: Any, **options: Any) -> Any:
        """Return the task with where it has to run."""
        where = (
            {"resources": {place.host: 1}} if self._placed else {"scheduling_strategy": "SPREAD"}
        )
        return task.options(**where, **options)

    def _all(self, refs: Sequence[Any]) -> list[Any]:
        left = [*refs]
        while left:
            left = self._waited(left, len(left))
        return ray.get([*refs])

    def _waited(self, refs: Sequence[Any], count: int = 1) -> list[Any]:
        """Wait for ``count`` tasks, or some seconds; return those that are not done.

        Raises:
            TrainyardError: an instance is lost, whose tasks would wait for ever.
        """
        _, left = ray.wait([*refs], num_returns=count, timeout=LOOK, fetch_local=False)
        if self._placed and left:
            there = ray.cluster_resources()
            if lost := [host for host in self._hosts if host not in there]:
                raise TrainyardError(
                    f"{', '.join(lost)}: is lost, and with it its raw data and its part of the "
                    "output; see the log there, and run the step again"
                )
        return left

    def _objects(self) -> tuple[list[RawObject], list[list[RawObject]]]:
        """Return all raw objects, and those, or parts of them, that each instance reads."""
        seen: list[Seen] = self._all(
            [self._on(one, ray_tasks.look).remote(one, self._hosts) for one in self._places]
        )
        for host, one in zip(self._hosts, seen, strict=True):
            if one.identity != seen[0].identity:
                raise DataError(
                    f"{host}: has other settings or code than {self._hosts[0]}, so they are not "
                    "instances of one job; start all of them with the same ones"
                )
        folder, settings = arguments.input_of(self._options), self._plan.settings
        if self._options.input:
            for host, one in zip(self._hosts, seen, strict=True):
                if one.files != seen[0].files:
                    raise DataError(
                        f"{folder}: {host} sees other files, sizes or times there than "
                        f"{self._hosts[0]}; the input has to be the same on all instances"
                    )
            whole = raw_objects.objects(folder, seen[0].files, settings)
            parts = raw_objects.divide_objects(whole, len(seen))
        else:
            self._check_apart(seen)
            everything = [file for one in seen for file in one.files]
            whole = raw_objects.objects(folder, everything, settings)
            parts = [
                list(
                    raw_objects.limit_to_files(
                        whole, {file.name: file for file in one.files}, settings
                    )
                )
                for one in seen
            ]
        arguments.check_objects(whole, folder, self._options.inputs)
        self._check_room(whole, parts, seen)
        return whole, parts

    def _check_apart(self, seen: Sequence[Seen]) -> None:
        names: dict[str, str] = {}
        for host, one in zip(self._hosts, seen, strict=True):
            for file in one.files:
                if first := names.get(file.name):
                    raise DataError(
                        f"{file.name}: {first} and {host} both have this file; the input's "
                        "S3DataDistributionType has to be ShardedByS3Key, or name a folder that "
                        "all instances see with --input"
                    )
                names[file.name] = host

    def _check_room(
        self, whole: Sequence[RawObject], parts: Sequence[Sequence[RawObject]], seen: Sequence[Seen]
    ) -> None:
        """Raises: TrainyardError: a disk is too small for an instance's share, by the raw sizes."""
        total = sum(one.bytes for one in whole)
        for host, own, one in zip(self._hosts, parts, seen, strict=True):
            share = max(sum(raw.bytes for raw in own), total // len(seen))
            if one.room < COPIES * share:
                raise TrainyardError(
                    f"{host}: its output has room for {one.room / 1e9:,.1f} GB, expected at least "
                    f"{COPIES * share / 1e9:,.1f}: {COPIES} times this instance's share of the raw "
                    f"data, {share / 1e9:,.1f} of {total / 1e9:,.1f} GB; raise shard.volume_gb or "
                    "shard.instance_count"
                )

    def _read(self, parts: Sequence[Sequence[RawObject]]) -> list[list[Read]]:
        work = [(number, raw) for number, part in enumerate(parts) for raw in part]
        log.info("%d raw objects on %d instances", len(work), len(parts))
        done = self._paced("raw objects", [
            (raw, self._on(self._places[number], ray_tasks.read).remote(self._places[number], raw))
            for number, raw in work
        ])  # fmt: skip
        reads: list[list[Read]] = [[] for _ in parts]
        for (number, _), one in zip(work, done, strict=True):
            reads[number].append(one)
        return reads

    def _paced(self, what: str, work: Sequence[tuple[Any, Any]]) -> list[Any]:
        """Wait for all of the tasks; ``work``: each object or unit, and its reference.

        Raises:
            DataError: the data of some are wrong; names them.
        """
        pace, tasks = Pace(what, [task for task, _ in work]), {ref: task for task, ref in work}
        left = [*tasks]
        while left:
            before, left = left, self._waited(left)
            for ref in {*before}.difference(left):
                pace.count_done(tasks[ref])
            pace.tick()
        pace.log()
        done = ray.get([ref for _, ref in work])
        check_data(sorted(one for one in done if isinstance(one, str)))
        return done

    def _survey(self, corpus: Corpus) -> Survey:
        """Find the equal records of all instances, and note which of them are left out."""
        records: Counter[int] = Counter()
        bytes_: Counter[int] = Counter()
        if not self._plan.identity:
            return corpus.survey(records, bytes_)
        spans, kept = corpus.ranges(), ray.put(corpus)
        log.info("surveying %d ranges of hashes", len(spans))
        names = [[run.name for _, run in runs] for runs in corpus.runs]
        found: list[Any] = []
        for span in spans:
            streams = [
                self._on(place, ray_tasks.keys).remote(place, own, span)
                for place, own in zip(self._places, names, strict=True)
            ]
            task = ray_tasks.duplicates.options(num_returns=1 + len(streams))
            found.append(task.remote(kept, *streams))
        marked = [
            self._on(place, ray_tasks.mark).remote(
                place, runs, spans, *(one[1 + number] for one in found)
            )
            for number, (place, runs) in enumerate(
                zip(self._places, self._own_runs(corpus), strict=True)
            )
        ]
        for one in self._all([one[0] for one in found]):
            records.update(one.records)
            bytes_.update(one.bytes)
        self._all(marked)
        return corpus.survey(records, bytes_)

    def _own_runs(self, corpus: Corpus) -> list[list[OwnRun]]:
        owned = []
        for runs in corpus.runs:
            own, before = [], 0
            for rank, run in runs:
                folder = corpus.objects[rank].folder if self._plan.by_folder else ""
                own.append((folder, run, before))
                before += run.records
            owned.append(own)
        return owned

    def _gather(
        self, corpus: Corpus, found: Survey, units: Sequence[Sequence[ShardObject]]
    ) -> None:
        """Send each record to the instance that packs it, wave by wave; then settle all of them."""
        spans = [ray_tasks.spans_of(own) for own in units]
        waves = [_waves(own) for own in self._own_runs(corpus)]
        count = max(map(len, waves))
        log.info("gathering %.1f MB of records in %d waves", sum(found.bytes.values()) / 1e6, count)
        runs: list[list[Any]] = [[] for _ in self._places]
        before: list[Any] = []
        for number in range(count):
            sent = [own[number] if number < len(own) else [] for own in waves]
            now = self._wave(number, sent, spans)
            while before:
                before = self._waited(before, len(before))
            for at, ref in enumerate(now):
                runs[at].append(ref)
            before = now
        rank = {
            one.name.split("/")[0] if self._plan.by_folder else "": at
            for at, one in enumerate(found.objects)
        }
        settled = []
        for place, refs in zip(self._places, runs, strict=True):
            gathered = [
                (f"{ray_tasks.GATHERED}/{run.name}", rank[folder])
                for several in self._all(refs)
                for folder, run in several
            ]
            own = found.model_copy(update={"runs": gathered, "distinct": True})
            settled.append((place, own))
        self._all([self._on(place, ray_tasks.settle).remote(place, own) for place, own in settled])

    def _wave(
        self, number: int, sent: Sequence[Sequence[OwnRun]], spans: Sequence[Sequence[Span]]
    ) -> list[Any]:
        """Send runs of each instance to all of them; return the references of what they wrote."""
        flat = [span for own in spans for span in own]
        pieces = []
        for place, own in zip(self._places, sent, strict=True):
            if own and flat:
                task = self._on(place, ray_tasks.cut, num_returns=len(flat))
                cuts = task.remote(place, own, flat)
                pieces.append(cuts if len(flat) > 1 else [cuts])
        gathered, at = [], 0
        for place, own in zip(self._places, spans, strict=True):
            columns = [one[at + n] for n in range(len(own)) for one in pieces]
            at += len(own)
            gathered.append(self._on(place, ray_tasks.gather).remote(place, number, own, *columns))
        return gathered

    def _pack(
        self, units: Sequence[Sequence[ShardObject]]
    ) -> list[Mapping[ShardObject, PackedUnit]]:
        work = [(at, unit) for at, own in enumerate(units) for unit in own]
        log.info("%d units on %d instances", len(work), len(units))
        done = self._paced("units", [
            (unit, self._on(self._places[at], ray_tasks.pack).remote(self._places[at], unit))
            for at, unit in work
        ])  # fmt: skip
        packed: list[dict[ShardObject, PackedUnit]] = [{} for _ in units]
        for (at, unit), one in zip(work, done, strict=True):
            packed[at][unit] = one
        return [*packed]


def _waves(runs: Sequence[OwnRun]) -> list[list[OwnRun]]:
    """Cut an instance's runs into waves of about WAVE_BYTES."""
    waves: list[list[OwnRun]] = []
    size = WAVE_BYTES
    for one in runs:
        if size >= WAVE_BYTES:
            waves.append([])
            size = 0
        waves[-1].append(one)
        size += one[1].bytes
    return waves or [[]]
