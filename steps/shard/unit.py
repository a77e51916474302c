"""One raw object becomes shards: read, quarantine, drop duplicates, split, pack, write.

What it gives depends on the object, its name and the plan, and on nothing else: not on the other
objects, the instance, the number of processes or an earlier run that was killed.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from errors import DataError, TrainingError
from steps.shard import progress
from steps.shard.duplicates import Recent
from steps.shard.hashes import column_hashes, record_hashes
from steps.shard.plan import SPLITS, Plan
from steps.shard.progress import Part, Progress
from steps.shard.quarantine import Quarantine
from steps.shard.raw import RawObject
from steps.shard.readers import read
from steps.shard.splits import split_numbers
from training.data.verify import sha256_of
from training.data.writer import ShardWriter


def shard(raw: RawObject, plan: Plan, advance: Callable[[int], None]) -> Callable[[], None]:
    """Read ``raw``, and begin to write its last shards.

    The function that is returned waits until all of them, and the quarantine file, are on the
    disk, and writes the progress record, which comes last. Another thread may call it.
    ``advance`` is called with the bytes that each batch of records takes in memory.

    Raises:
        DataError: the object cannot be read, or is mostly bad. The message begins with its name.
    """
    quarantine = Quarantine(plan.output / "quarantine", raw.unit, raw.name, plan.max_bad_share)
    records = Records(raw, plan, quarantine)
    outlets = [_Outlet(raw, plan, split) for split in SPLITS]
    try:
        for batch, splits in records:
            advance(batch.nbytes)
            for number, outlet in enumerate(outlets):
                outlet.add(_of(batch, splits == number))
        for outlet in outlets:
            outlet.finish()
    except DataError as error:
        quarantine.discard()
        raise DataError(str(error).replace(str(raw.path), raw.name)) from None

    def finish() -> None:
        quarantine.close()
        done = Progress(
            identity=progress.identity(raw, plan),
            records=records.count,
            duplicates=records.duplicates,
            quarantined=quarantine.count,
            reasons=quarantine.reasons,
            quarantine=sha256_of(quarantine.path) if quarantine.count else None,
            splits={split: outlet.close() for split, outlet in zip(SPLITS, outlets, strict=True)},
        )
        progress.write(done, raw, plan)

    return finish


class Records:
    """The records of one object that are kept, batch by batch, each with the split of each."""

    def __init__(self, raw: RawObject, plan: Plan, quarantine: Quarantine) -> None:
        self.count = 0
        """Records so far: kept, equal and bad ones."""
        self.duplicates = 0
        self._raw, self._plan, self._quarantine = raw, plan, quarantine
        self._recent = Recent()

    def __iter__(self) -> Iterator[tuple[pa.RecordBatch, np.ndarray]]:
        """(columns of the packing, index into SPLITS of each record)."""
        plan = self._plan
        columns, identity = plan.columns, plan.identity
        key = list(columns) if plan.key is None else [plan.key]
        for batch in read(self._raw.path, columns):
            self.count += len(batch.records) + len(batch.bad)
            self._quarantine.add(batch.bad, self.count)
            hashes = {n: column_hashes(batch.records.column(n)) for n in {*key, *identity}}
            kept = self._first([hashes[name] for name in identity], len(batch.records))
            splits = split_numbers(
                record_hashes([hashes[name] for name in key]),
                plan.validation_share,
                plan.test_share,
            )
            records = batch.records.select(list(plan.packing.columns))
            yield _of(records, kept), splits[kept]

    def _first(self, identity: Sequence[np.ndarray], count: int) -> np.ndarray:
        """Which records equal none before them, bool (n,)."""
        if not identity:
            return np.ones(count, bool)
        first = self._recent.first(record_hashes(identity))
        self.duplicates += count - int(first.sum())
        return first


class _Outlet:
    """What one object gives to one split."""

    def __init__(self, raw: RawObject, plan: Plan, split: str) -> None:
        self._packer = plan.packing.packer()
        fields = plan.packing.fields
        self._writer = ShardWriter(plan.output / split, raw.unit, fields, plan.shard_bytes)
        self._records = 0

    def add(self, records: pa.RecordBatch) -> None:
        if len(records):
            self._records += len(records)
            self._writer.add(self._packer.add(records))

    def finish(self) -> None:
        """No more records come: the last shards are on their way to the disk."""
        if self._records:
            self._writer.add(self._packer.flush())
        self._writer.finish()

    def close(self) -> Part:
        """What it gave, once it is on the disk."""
        shards = self._writer.close()
        return Part(
            records=self._records,
            samples=self._writer.samples,
            statistics=_as_json(self._packer.statistics()),
            shards=shards,
        )


def _of(records: pa.RecordBatch, mask: np.ndarray) -> pa.RecordBatch:
    return records if mask.all() else records.filter(pa.array(mask))


def _as_json(statistics: dict[str, Any]) -> dict[str, Any]:
    """As it will be read again.

    Raises:
        TrainingError: the workload counted something that JSON cannot hold.
    """
    try:
        return json.loads(json.dumps(statistics, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise TrainingError(f"the workload's statistics() are no JSON: {error}") from None
