"""Pack one unit into shards: gather its records from all sorted runs, drop duplicates, write.

A unit is a range of the records' hashes. The shards depend only on the distinct records in that
range and on the plan.
"""

import functools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from steps.shard import shard_progress, sorted_runs, split_summary
from steps.shard.duplicate_records import mark_kept_records
from steps.shard.raw_objects import PackingUnit
from steps.shard.readers.batch import encode_category
from steps.shard.shard_plan import SPLITS, Plan
from steps.shard.shard_progress import PackedUnit, SplitOutput
from steps.shard.survey import STEM, Survey, iter_hash_ranges, list_run_paths
from training.data.shard_writer import ShardWriter
from trainyard.common.errors import DataError, TrainingError


def pack_unit(unit: PackingUnit, plan: Plan, advance: Callable[[int], None]) -> Callable[[], None]:
    """Gather and pack the records of one unit, and start to write its last shards.

    Return a function that waits until all shards are on the disk and then writes the unit's
    progress record. It may be called in another thread.
    ``advance`` is called for each batch of records with the bytes that it takes in memory.

    Raises:
        DataError: a value is out of range. The message begins with the unit's name.
    """
    total_bytes = sum(_read_survey(plan.progress, unit.corpus).bytes.values())
    outlets = [_SplitWriter(unit, plan, split) for split in SPLITS]
    try:
        for batch, splits in gather_records(unit, plan):
            advance(batch.nbytes)
            for number, outlet in enumerate(outlets):
                mask = splits == number
                outlet.add(batch if mask.all() else batch.filter(pa.array(mask)))
        for outlet in outlets:
            outlet.finish()
    except DataError as error:
        raise DataError(f"{unit.name}: {error}") from None

    def finish() -> None:
        """Wait for the shards; then write the unit's summary, if any, and its progress record."""
        parts = {split: outlet.close() for split, outlet in zip(SPLITS, outlets, strict=True)}
        if plan.summary:
            parts |= split_summary.write_summary(
                unit, plan, parts["train"], unit.bytes / max(total_bytes, 1)
            )
        shard_progress.write_progress(PackedUnit(splits=parts), unit.stem, plan.progress)

    return finish


def gather_records(unit: PackingUnit, plan: Plan) -> Iterator[tuple[pa.RecordBatch, np.ndarray]]:
    """Yield the unit's records without duplicates, sorted by hash, in batches.

    Each batch is (record batch with the packing's columns, index into SPLITS of each record).
    """
    survey = _read_survey(plan.progress, unit.corpus)
    files = list_run_paths(survey, plan)
    folder = np.array([not unit.folder or entry.name.split("/")[0] == unit.folder
                       for entry in survey.objects])  # fmt: skip
    # An equal record in another folder can replace one of this folder. So runs of other folders
    # may be skipped only if no two records are equal any more.
    if survey.distinct:
        files = [(path, rank) for path, rank in files if folder[rank]]
    first = unit.number * unit.slots
    for low, high in iter_hash_ranges(unit.count * unit.slots, first, first + unit.slots):
        part = sorted_runs.read_part(files, low, high)
        if part is None:
            continue
        keys = part.keys
        mask = folder[part.ranks]
        if not survey.distinct:
            mask &= mark_kept_records(keys.order, keys.tie, part.ranks)
        if mask.any():
            indices = np.argsort(keys.order[mask], kind="stable")
            records = part.read_content(mask).take(pa.array(indices))
            # Runs store categories as strings, but a packing expects dictionaries.
            names = records.schema.names
            arrays = [
                encode_category(array, plan.packing.columns[name].kind)
                for name, array in zip(names, records.columns, strict=True)
            ]
            records = pa.RecordBatch.from_arrays(arrays, names)
            yield records, keys.split[mask][indices]
        # Delete the views first: nothing may access the memory pages after they are released.
        del part, keys
        sorted_runs.release_runs(files)


class _SplitWriter:
    """Packer and writer of the records that one unit has in one split."""

    def __init__(self, unit: PackingUnit, plan: Plan, split: str) -> None:
        self._packer = plan.packing.packer()
        fields = plan.packing.fields
        self._writer = ShardWriter(plan.output / split, unit.stem, fields, plan.shard_bytes)
        self._records = 0

    def add(self, records: pa.RecordBatch) -> None:
        """Pack the records, and start to write the shards that are full."""
        if len(records):
            self._records += len(records)
            self._writer.add(self._packer.add(records))

    def finish(self) -> None:
        """Pack the last records, and start to write their shards."""
        if self._records:
            self._writer.add(self._packer.flush())
        self._writer.flush()

    def close(self) -> SplitOutput:
        """Wait until the shards are on the disk; return the shards and the output's counts."""
        shards = self._writer.close()
        return SplitOutput(
            records=self._records,
            samples=self._writer.samples,
            statistics=_round_trip_json(self._packer.statistics()),
            shards=shards,
        )


@functools.lru_cache(1)
def _read_survey(folder: Path, corpus: str) -> Survey:
    """Return the survey in ``folder``. It is cached, so that a process reads it only once."""
    sorted_runs.open_run.cache_clear()
    corpus_survey = shard_progress.read_progress(Survey, STEM, folder)
    if corpus_survey is None or corpus_survey.corpus != corpus:
        raise TrainingError(f"{folder}: the survey was removed while units were packed; run again")
    return corpus_survey


def _round_trip_json(statistics: dict[str, Any]) -> dict[str, Any]:
    """Return the statistics, converted to JSON and back.

    Raises:
        TrainingError: the workload's statistics cannot be written as JSON.
    """
    try:
        return json.loads(json.dumps(statistics, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise TrainingError(f"the workload's statistics() are not JSON: {error}") from None
