"""Find equal records in one pass over the keys of all sorted runs, in bounded memory.

The range of all hashes is divided into ranges that are processed one after the other. With several
instances, each one processes some of these ranges, and all instances send it the keys of their
records in them.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from steps.shard import sorted_runs
from steps.shard.duplicate_records import mark_kept_records
from steps.shard.raw_objects import RawObject
from steps.shard.shard_plan import Plan
from steps.shard.shard_progress import ReadResult
from steps.shard.survey import Counts, Survey, corpus_sha256, iter_hash_ranges

ROWS = 2**21  # number of records that are processed at a time: about 100 MB

KeyStream = Iterator[tuple[pa.RecordBatch, np.ndarray]]
"""Keys of one instance's records, as ``sorted_runs.read_keys`` yields them."""


@dataclass
class Duplicates:
    """Records in some ranges of hashes that are left out because an equal one is kept."""

    records: Counter[int] = field(default_factory=Counter)
    """Number of these records, by rank of the raw object."""
    bytes: Counter[int] = field(default_factory=Counter)
    """Bytes of their content, by rank of the raw object."""
    masks: list[bytearray] = field(default_factory=list)
    """For each stream of keys: one bit per record, 1 if it is left out. Each range starts a byte.
    """


class Corpus:
    """All raw objects, and the progress records of all instances that have read them."""

    def __init__(
        self, objects: Iterable[RawObject], reads: Sequence[Sequence[ReadResult]], plan: Plan
    ) -> None:
        """Take the progress records: ``reads`` has those of each instance, in their order."""
        self.objects = sorted(objects, key=lambda raw: (raw.folder, raw.name))
        """Raw objects, sorted. An object's index is its rank."""
        self._plan = plan
        rank = {raw.name: number for number, raw in enumerate(self.objects)}
        self._parts: list[list[ReadResult]] = [[] for _ in self.objects]
        for own_reads in reads:
            for read in own_reads:
                self._parts[rank[read.source]].append(read)
        self.runs = [
            [
                (rank[read.source], run)
                for read in sorted(own_reads, key=lambda read: rank[read.source])
                for run in read.runs
            ]
            for own_reads in reads
        ]
        """For each instance (rank, run) of its runs."""

    def list_ranges(self, part: int = 0, parts: int = 1) -> list[tuple[int, int]]:
        """Return the ranges of hashes, (low, high), to survey one after the other.

        They cover part number ``part`` of ``parts`` equal parts of all hashes.
        """
        records = sum(run.records for runs in self.runs for _, run in runs)
        count = -(-records // (ROWS * parts)) or 1
        return list(iter_hash_ranges(count * parts, part * count, (part + 1) * count))

    def find_duplicates(self, streams: Sequence[KeyStream]) -> Duplicates:
        """Find the equal records in ranges of hashes; ``streams`` has each instance's keys."""
        duplicates = Duplicates(masks=[bytearray() for _ in streams])
        ranks = [np.array([rank for rank, _ in runs], np.int64) for runs in self.runs]
        for parts in zip(*streams, strict=True):
            batches = [batch for batch, _ in parts]
            keys = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
            order, tie, size = (column.to_numpy() for column in keys.columns)
            rank = np.concatenate(
                [np.repeat(rank, counts) for rank, (_, counts) in zip(ranks, parts, strict=True)]
            )
            out = ~mark_kept_records(order, tie, rank)
            cuts = np.cumsum([len(batch) for batch in batches])[:-1]
            for mask, bits in zip(duplicates.masks, np.split(out, cuts), strict=True):
                mask.extend(np.packbits(bits).tobytes())
            out_ranks, positions = np.unique(rank[out], return_inverse=True)
            bytes_ = np.bincount(positions, size[out], len(out_ranks)).astype(np.int64)
            records = np.bincount(positions, minlength=len(out_ranks))
            duplicates.records.update(dict(zip(out_ranks.tolist(), records.tolist(), strict=True)))
            duplicates.bytes.update(dict(zip(out_ranks.tolist(), bytes_.tolist(), strict=True)))
            # Deleted before the next range is read, so that only one is in memory at a time.
            del keys, parts, batches
        return duplicates

    def count_records(self, records: Mapping[int, int] | None = None) -> list[Counts]:
        """Return the counts of all raw objects.

        ``records`` has the number of duplicates by rank, without those within a single run.
        """
        out = []
        for number, (raw, parts) in enumerate(zip(self.objects, self._parts, strict=True)):
            duplicates = (records or {}).get(number, 0)
            out.append(
                Counts(
                    name=raw.name,
                    records=sum(read.records for read in parts),
                    duplicates=sum(read.duplicates for read in parts) + duplicates,
                    quarantined=sum(read.quarantined for read in parts),
                    reasons=[reason for read in parts for reason in read.reasons],
                    units=[read.unit for read in parts if read.quarantined],
                )
            )
        return out

    def build_survey(self, records: Mapping[int, int], bytes_: Mapping[int, int]) -> Survey:
        """Return the survey; ``records`` and ``bytes_`` have the duplicates' counts by rank."""
        by_folder = self._plan.by_folder
        total: Counter[str] = Counter({"": 0} if not by_folder else {})
        for number, raw in enumerate(self.objects):
            total[raw.folder if by_folder else ""] -= bytes_.get(number, 0)
        for rank, run in (pair for runs in self.runs for pair in runs):
            total[self.objects[rank].folder if by_folder else ""] += run.bytes
        return Survey(
            corpus=corpus_sha256(self.objects, self._plan),
            objects=self.count_records(records),
            runs=[(run.name, rank) for runs in self.runs for rank, run in runs],
            distinct=not self._plan.identity,
            bytes=dict(total),
        )


def survey_corpus(corpus: Corpus, plan: Plan) -> Survey:
    """Find the duplicates in a job with a single instance; return the survey of its records."""
    sorted_runs.open_run.cache_clear()  # earlier calls may have opened other files of these names
    duplicates = Duplicates()
    if plan.identity:
        files = [plan.scratch / run.name for _, run in corpus.runs[0]]
        duplicates = corpus.find_duplicates([sorted_runs.read_keys(files, corpus.list_ranges())])
    return corpus.build_survey(duplicates.records, duplicates.bytes)
