"""Read, survey and share out the records as one of several instances.

Each instance reads a part of the raw objects, finds the duplicates in a part of all hashes, and
pulls the content of the units that it packs. From then on no instance needs another one.
"""

import base64
import logging
import shutil
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from steps.shard import pool_results, raw_objects, shard_progress, sorted_runs, survey
from steps.shard.exchange import PULLED, Peers
from steps.shard.pool import Pool
from steps.shard.pull_content import pull
from steps.shard.quarantine import check_share
from steps.shard.raw_objects import File, RawObject
from steps.shard.served_runs import ServedRuns
from steps.shard.settings import COPIES
from steps.shard.shard_plan import Plan
from steps.shard.shard_progress import Read, Record
from steps.shard.survey import Survey
from steps.shard.survey_pass import Corpus, Duplicates
from trainyard.common.errors import DataError, TrainyardError
from trainyard.common.hashes import json_sha256

log = logging.getLogger(__name__)

"""Stem of the record that all instances have pulled: this one needs no other one any more."""


class Listing(Record):
    """Files of raw data that one instance, or each of them, sees."""

    files: list[list[File]]
    digest: str
    """Hash of the files, also where all instances see all of them and ``files`` is empty."""


class Reads(Record):
    """What one instance found in its raw objects."""

    reads: list[Read]


class Lost(Record):
    """Duplicates that one instance found in its part of all hashes, by rank of the raw object."""

    records: dict[int, int]
    bytes: dict[int, int]


class Mask(Record):
    """Duplicates that one instance found among another's records, in its own part of all hashes."""

    bits: str
    """``Duplicates.masks``: zlib, base64."""


def objects(
    peers: Peers, folder: Path, plan: Plan, *, shared: bool
) -> tuple[list[RawObject], list[RawObject]]:
    """Return all raw objects, and those, or parts of them, that this instance reads.

    ``shared``: every instance sees all files in ``folder``; else each sees some that no other one
    does, as of S3 under ShardedByS3Key.

    Raises:
        DataError: the instances see something else.
    """
    hosts, number = peers.cluster.hosts, peers.cluster.number
    seen = raw_objects.files(folder) if shared or folder.is_dir() else []
    known = _listing(seen, peers, folder, plan, shared)
    if shared:
        whole = raw_objects.objects(folder, seen, plan.settings)
        return whole, raw_objects.divided(whole, len(hosts))[number]
    names: dict[str, str] = {}
    for host, files in zip(hosts, known.files, strict=True):
        for one in files:
            if first := names.get(one.name):
                raise DataError(
                    f"{one.name}: {first} and {host} both have this file; the input's "
                    "S3DataDistributionType has to be ShardedByS3Key, or name a folder that all "
                    "instances see with --input"
                )
            names[one.name] = host
    everything = [one for files in known.files for one in files]
    whole = raw_objects.objects(folder, everything, plan.settings)
    return whole, list(raw_objects.seen(whole, {one.name: one for one in seen}, plan.settings))


def _listing(seen: Sequence[File], peers: Peers, folder: Path, plan: Plan, shared: bool) -> Listing:
    """Exchange lists of files."""
    digest = json_sha256(seen)
    own = Listing(identity=peers.identity, files=[] if shared else [list(seen)], digest=digest)
    shard_progress.write(own, "listing", plan.progress)
    listings = peers.gather(Listing, "listing", peers.identity, "for lists of raw data")
    for host, one in zip(peers.cluster.hosts, listings, strict=True):
        if shared and one.digest != digest:
            raise DataError(
                f"{folder}: {host} sees other files, sizes or times there than "
                f"{peers.cluster.host}; the input has to be the same on all instances"
            )
    files = [files for one in listings for files in one.files]
    return Listing(identity=peers.identity, files=files, digest=digest)


def _check_room(
    whole: Sequence[RawObject], own: Sequence[RawObject], peers: Peers, plan: Plan
) -> None:
    """Raises: TrainyardError: the disk is too small for this instance's share, by the raw sizes."""
    count = len(peers.cluster.hosts)
    share = max(sum(one.bytes for one in own), sum(one.bytes for one in whole) // count)
    room = shutil.disk_usage(plan.output).free
    if room < COPIES * share:
        raise TrainyardError(
            f"{plan.output}: has room for {room / 1e9:,.1f} GB, expected at least "
            f"{COPIES * share / 1e9:,.1f}: {COPIES} times this instance's share of the raw data, "
            f"{share / 1e9:,.1f} of {sum(one.bytes for one in whole) / 1e9:,.1f} GB; raise "
            "shard.volume_gb or shard.instance_count"
        )


def survey_and_pull(
    whole: Sequence[RawObject], own: Sequence[RawObject], peers: Peers, plan: Plan, pool: Pool
) -> Survey:
    """Do this instance's part of reading and of the survey; pull the content of its units.

    The survey's runs are those that were pulled.

    Raises:
        DataError: objects that cannot be read, on whatever instance; too many bad records.
        TrainyardError: an instance is silent for too long, or has failed.
    """
    identity, hosts = peers.corpus, peers.cluster.hosts
    _check_room(whole, own, peers, plan)
    done = pool_results.read_objects(own, plan, pool)
    shard_progress.write(Reads(identity=identity, reads=done), "reads", plan.progress)
    reads = peers.gather(Reads, "reads", identity, "for raw objects to be read")
    corpus = Corpus(whole, [one.reads for one in reads], plan)
    check_share(corpus.counts(), plan.max_bad_share)
    found = _survey(corpus, peers, plan)
    pulled = pull(found, peers, plan, pool.processes)
    found = found.model_copy(update={"runs": pulled, "distinct": True})
    shard_progress.write(found, survey.STEM, plan.progress)
    shard_progress.write(Record(identity=identity), PULLED, plan.progress)
    peers.pulled = True
    try:
        peers.gather(Record, PULLED, identity, "for all records to be pulled")
    except TrainyardError as error:
        log.warning("%s. All content of this instance is here, so it goes on", error)
        return found
    peers.announce(hosts)
    _remove_own_runs(peers, plan)
    return found


def _survey(corpus: Corpus, peers: Peers, plan: Plan) -> Survey:
    """Find the duplicates of this instance's part of all hashes; return the survey of all."""
    cluster, identity = peers.cluster, peers.corpus
    sorted_runs.opened.cache_clear()  # an earlier run may have had other files of these names
    folders = [one.folder if plan.by_folder else "" for one in corpus.objects]
    runs = [(folders[rank], run) for rank, run in corpus.runs[cluster.number]]
    peers.runs = ServedRuns(plan.scratch, runs)
    records: Counter[int] = Counter()
    bytes_: Counter[int] = Counter()
    if plan.identity:
        count = len(corpus.ranges(0, len(cluster.hosts)))
        log.info("surveying %d of %d ranges of hashes", count, count * len(cluster.hosts))
        _write_lost(_duplicates(corpus, count, peers, plan), peers, plan)
        for one in peers.gather(Lost, "lost", identity, "for hashes to be surveyed"):
            records.update(one.records)
            bytes_.update(one.bytes)
        masks = peers.gather(Mask, f"mask-{cluster.host}", identity, "for duplicates to be named")
        for number, mask in enumerate(masks):
            bits = zlib.decompress(base64.b64decode(mask.bits))
            first = number * count
            peers.runs.mark(count * len(cluster.hosts), first, first + count, bits)
    peers.runs.marked = True
    return corpus.survey(records, bytes_)


def _duplicates(corpus: Corpus, count: int, peers: Peers, plan: Plan) -> Duplicates:
    hosts, number = peers.cluster.hosts, peers.cluster.number
    part = count * len(hosts), number * count, (number + 1) * count
    own = [plan.scratch / run.name for _, run in corpus.runs[number]]
    spans = corpus.ranges(number, len(hosts))
    return corpus.duplicates(
        [
            sorted_runs.keys(own, spans) if host == peers.cluster.host else peers.keys(host, part)
            for host in hosts
        ]
    )


def _write_lost(found: Duplicates, peers: Peers, plan: Plan) -> None:
    identity = peers.corpus
    for host, mask in zip(peers.cluster.hosts, found.masks, strict=True):
        bits = base64.b64encode(zlib.compress(mask, 1)).decode()
        shard_progress.write(Mask(identity=identity, bits=bits), f"mask-{host}", plan.progress)
    lost = Lost(identity=identity, records=dict(found.records), bytes=dict(found.bytes))
    shard_progress.write(lost, "lost", plan.progress)


def _remove_own_runs(peers: Peers, plan: Plan) -> None:
    """Make room: all instances have what they need of this one's runs."""
    peers.runs = None
    sorted_runs.opened.cache_clear()  # a file that is mapped keeps its place on the disk
    for path in plan.scratch.iterdir():
        if path.is_file():
            path.unlink()
