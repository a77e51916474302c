"""Turn one raw object into sorted runs: read, quarantine, hash, split, sort, write.

The runs depend only on the object and the plan: not on the other objects, the number of processes,
or an earlier run of the job that was killed.
"""

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from steps.shard import shard_progress
from steps.shard.manifests import Quarantine
from steps.shard.raw_objects import RawObject
from steps.shard.readers import read_records
from steps.shard.readers.batch import decode_dictionary
from steps.shard.record_hashes import assign_splits, combine_hashes, hash_column
from steps.shard.shard_plan import Plan
from steps.shard.shard_progress import ReadResult
from steps.shard.sorted_runs import Keys, RunWriter
from training.data.bit_mixing import mix_bits
from trainyard.common.errors import DataError

RUN_BYTES = 64 * 10**6
"""Maximum bytes of a run, plus one batch of the reader. Sorting takes twice that in memory."""


def write_sorted_runs(
    raw: RawObject, plan: Plan, advance: Callable[[int], None]
) -> Callable[[], None]:
    """Read ``raw``, and write its sorted runs.

    Return a function that waits until the quarantine file is on the disk and then writes the
    progress record. It may be called in another thread.
    ``advance`` is called for each batch of records with the bytes that it takes in memory.

    Raises:
        DataError: the object cannot be read, or has too many bad records. The message begins with
            its name.
    """
    folder = plan.output / "quarantine"
    quarantine = Quarantine(folder, raw.unit, raw.files or raw.name, plan.max_bad_share)
    limit, unique = min(RUN_BYTES, plan.shard_bytes), bool(plan.identity)
    writer = RunWriter(plan.scratch, raw.unit, limit=limit, unique=unique)
    records = Records(raw, plan, quarantine)
    try:
        for keys, batch in records:
            advance(batch.nbytes)
            writer.add(keys, batch)
        runs = writer.close()
    except DataError as error:
        quarantine.discard()
        # Name the file by its path below the input folder, not by its path on this machine.
        source = f"{raw.path}/" if raw.files else str(raw.path)
        raise DataError(str(error).replace(source, "" if raw.files else raw.name)) from None

    def finish() -> None:
        """Wait for the quarantine file; then write the object's progress record."""
        quarantine.close()
        progress_record = ReadResult(
            source=raw.name,
            unit=raw.unit,
            records=records.count,
            duplicates=writer.duplicates,
            quarantined=quarantine.count,
            reasons=quarantine.reasons,
            runs=runs,
        )
        shard_progress.write_progress(progress_record, raw.unit, plan.progress)

    return finish


class Records:
    """Iterable over the good records of a raw object with their keys; quarantines the bad ones."""

    def __init__(self, raw: RawObject, plan: Plan, quarantine: Quarantine) -> None:
        self.count = 0
        """Number of records so far, good and bad."""
        self._raw, self._plan, self._quarantine = raw, plan, quarantine

    def __iter__(self) -> Iterator[tuple[Keys, pa.RecordBatch]]:
        """Yield batches: (keys, the packing's columns with categories as plain strings)."""
        columns = self._plan.columns
        for batch in read_records(self._raw.path, columns, self._raw.files, int(self._plan.inputs)):
            self.count += len(batch.records) + len(batch.bad_records)
            self._quarantine.add(batch.bad_records, self.count)
            if len(batch.records):
                keys = self._compute_keys(batch.records)
                records = batch.records.select(list(self._plan.packing.columns))
                columns_ = [decode_dictionary(column) for column in records.columns]
                yield keys, pa.RecordBatch.from_arrays(columns_, records.schema.names)

    def _compute_keys(self, records: pa.RecordBatch) -> Keys:
        """Return the sort keys of each record: its hashes, size and split."""
        plan = self._plan
        hashes = {name: hash_column(records.column(name)) for name in plan.columns}
        tie = combine_hashes(list(hashes.values()))
        identity_hashes = (
            combine_hashes([hashes[name] for name in plan.identity]) if plan.identity else tie
        )
        key = tie if plan.key is None else hashes[plan.key]
        return Keys(
            # The hash is mixed, because it may also decide the split: unmixed, all records of the
            # test split would have low values of ``order``.
            order=mix_bits(identity_hashes),
            tie=tie,
            size=_measure_record_sizes(records.select(list(plan.packing.columns))),
            split=assign_splits(key, plan.validation_share, plan.test_share),
        )


def _measure_record_sizes(records: pa.RecordBatch) -> np.ndarray:
    """Return the bytes of each record's content: those of strings and bytes, and 8 for a number.

    The sizes do not depend on how Arrow stores the columns.
    """
    sizes = np.zeros(len(records), np.uint32)
    for column in records.columns:
        if pa.types.is_floating(column.type) or pa.types.is_integer(column.type):
            sizes += 8
        elif pa.types.is_list(column.type):
            widths = pc.list_value_length(column).fill_null(0)
            sizes += 8 * widths.to_numpy(zero_copy_only=False).astype(np.uint32)
        elif pa.types.is_dictionary(column.type):
            lengths = pc.binary_length(column.dictionary).take(column.indices)
            sizes += lengths.fill_null(0).to_numpy().astype(np.uint32)
        else:
            lengths = pc.binary_length(column).fill_null(0)
            sizes += lengths.to_numpy(zero_copy_only=False).astype(np.uint32)
    return sizes
