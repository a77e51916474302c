"""Ray tasks that run on the instances: read, compare keys, cut, gather, pack.

Ray may run a task again. This is safe because every file that a task writes is named after its
content and appears as a whole. In a cluster that the job starts itself, an instance's tasks run on
that instance, which has its raw objects and output. In an existing cluster of the user, all nodes
share the folders, and a task runs on any of them.
"""

import functools
import json
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import ray

from steps.shard import arguments, manifests, pool, raw_objects, shard_progress, sorted_runs, survey
from steps.shard.pool import disk_full_errors, set_threads
from steps.shard.raw_objects import File, PackingUnit, RawObject
from steps.shard.ray_cluster import ENDED, JOB
from steps.shard.read_object import RUN_BYTES
from steps.shard.shard_plan import Plan
from steps.shard.shard_progress import PackedUnit, ReadResult, RunFile
from steps.shard.survey import Survey, iter_hash_ranges
from steps.shard.survey_pass import Corpus
from trainyard.common import atomic_file
from trainyard.common.errors import DataError

GATHERED = "gathered"
"""Name of the folder, in an instance's scratch folder, with the runs of the units that it packs."""
LEFT_OUT = "left-out"
"""Name of a file with one byte for each record of an instance's runs: 1 if the record is left out
because an equal one is kept."""

Span = tuple[str, int, int]
"""First folder, or "" for any, and a range of hashes (low, high)."""
OwnRun = tuple[str, RunFile, int]
"""A run of an instance: the first folder of its records, its file, and the number of records in the
instance's runs before it."""


@dataclass(frozen=True)
class Instance:
    """An instance whose files a task reads and writes: folders are named by ``host``."""

    host: str
    words: tuple[str, ...] = ()
    """Arguments of the job. Empty: use those that the instance's own process was given."""


@functools.lru_cache(64)
def _read_job(instance: Instance) -> tuple[Plan, Path]:
    """Return the instance's plan and input folder."""
    # Ray runs one task on each core, so each task uses one thread.
    set_threads(1)
    options = arguments.parse_arguments([*instance.words] or json.loads(os.environ[JOB]))
    return arguments.build_plan(options, instance.host), arguments.find_input_folder(options)


def _read_plan(instance: Instance) -> Plan:
    return _read_job(instance)[0]


@dataclass(frozen=True)
class HostState:
    """Raw files, settings and disk space of an instance before any record is read."""

    files: list[File]
    identity: str
    """The job's settings as JSON; the instances of one job must agree on them."""
    free_bytes: int
    """Free bytes on the disk of its output."""


@ray.remote
def list_raw_data(instance: Instance, hosts: Sequence[str]) -> HostState:
    """Prepare the output folder; return the instance's raw files, identity and free disk space."""
    plan, folder = _read_job(instance)
    with disk_full_errors(plan.output):
        manifests.prepare_output(plan, hosts)
        files = raw_objects.list_files(folder) if folder.is_dir() else []
        identity = json.dumps([plan.settings_sha256, plan.max_bad_share])
        return HostState(files, identity, shutil.disk_usage(plan.output).free)


@ray.remote
def read_raw_object(instance: Instance, raw: RawObject) -> ReadResult | str:
    """Read a raw object into sorted runs; return its progress record, or the error in its data."""
    plan, folder = _read_job(instance)
    # Replace the path by the one on the instance that runs this task.
    raw = replace(raw, path=folder if raw.files else folder / raw.name)
    return _run_task(raw, ReadResult, raw.unit, plan)


@ray.remote
def pack_unit_on(instance: Instance, unit: PackingUnit) -> PackedUnit | str:
    """Pack a unit; return its progress record, or the error in its data."""
    return _run_task(unit, PackedUnit, unit.stem, _read_plan(instance))


def _run_task(task: pool.Task, kind: type, stem: str, plan: Plan) -> Any:
    """Run the task; return its progress record, or the error in its data as text."""
    try:
        with disk_full_errors(plan.output):
            pool.begin_task(task, plan, lambda size: None)()
    except DataError as error:
        return str(error)
    return pool.read_record(kind, stem, plan)


@ray.remote
def read_keys(
    instance: Instance, names: Sequence[str], span: tuple[int, int]
) -> tuple[Any, np.ndarray]:
    """Return the keys of an instance's records in a range of hashes, and each run's record count.

    The keys are in Arrow's stream format, as ``_serialize_batches`` returns them.
    """
    paths = [_read_plan(instance).scratch / name for name in names]
    [(batch, counts)] = sorted_runs.read_keys(paths, [span])
    return _serialize_batches([batch]), counts


@ray.remote
def find_duplicates(corpus: Corpus, *streams: tuple[Any, np.ndarray]) -> list[Any]:
    """Find equal records in a range of hashes; ``streams``: each instance's ``read_keys`` result.

    Return the counts, then for each instance a bit mask of its records that are left out.
    """
    result = corpus.find_duplicates(
        [iter([(_deserialize_batches(k)[0], counts)]) for k, counts in streams]
    )
    # The masks are separate results, so that Ray sends each one only to its instance.
    return [replace(result, masks=[]), *map(bytes, result.masks)]


@ray.remote
def mark_left_out(
    instance: Instance, runs: Sequence[OwnRun], spans: Sequence[tuple[int, int]], *masks: bytes
) -> None:
    """Write the file LEFT_OUT, which marks the instance's records that are left out.

    ``masks`` has one bit mask for each range of hashes in ``spans``.
    """
    scratch = _read_plan(instance).scratch
    records = sum(run.records for _, run, _ in runs)
    if not records:
        return
    with disk_full_errors(scratch):
        # A memory-mapped file of zeros, because the marks may need more memory than there is.
        marks = np.memmap(scratch / LEFT_OUT, bool, "w+", shape=records)
        for (low, high), mask in zip(spans, masks, strict=True):
            if not any(mask):
                continue
            bits, first = np.unpackbits(np.frombuffer(mask, np.uint8)), 0
            for _, run, record_count in runs:
                start, stop = sorted_runs.open_run(scratch / run.name).find_positions(low, high)
                count = stop - start
                begin = record_count + start
                marks[begin : begin + count] = bits[first : first + count]
                first += count
        marks.flush()


@ray.remote
def cut_spans(instance: Instance, runs: Sequence[OwnRun], spans: Sequence[Span]) -> Any:
    """Return for each span the keys and content of the records in these runs that are kept.

    If there is only one span, the result is not in a list, because that is what Ray expects of a
    task with one result.
    """
    scratch = _read_plan(instance).scratch
    path = scratch / LEFT_OUT
    marks = np.memmap(path, bool, "r") if path.is_file() else None
    pieces: list[list[pa.RecordBatch]] = [[] for _ in spans]
    for folder, run_file, record_count in runs:
        run = sorted_runs.open_run(scratch / run_file.name)
        for number, (span_folder, low, high) in enumerate(spans):
            start, stop = run.find_positions(low, high)
            if span_folder != folder or start == stop:
                continue
            records = run.select(low, high)
            mask = marks[record_count + start : record_count + stop] if marks is not None else None
            if mask is not None and mask.any():
                records = records.filter(pa.array(~np.asarray(mask)))
            pieces[number].append(records)
    results = [_serialize_batches(batches) for batches in pieces]
    sorted_runs.open_run.cache_clear()  # its memory pages are not needed any more
    return results if len(results) > 1 else results[0]


@ray.remote
def gather_spans(
    instance: Instance, wave: int, spans: Sequence[Span], *pieces: Any
) -> list[tuple[str, RunFile]]:
    """Write the records of an instance's spans as runs; return (first folder, run) of each.

    ``pieces`` are the results of ``cut_spans``: those of the first span from each instance, then
    those of the next span. They are arguments of the task so that Ray starts it when they have
    arrived. If the task itself waited for them, Ray would start another worker in the meantime.
    """
    plan = _read_plan(instance)
    folder, limit = plan.scratch / GATHERED, min(RUN_BYTES, plan.shard_bytes)
    with disk_full_errors(folder):
        folder.mkdir(exist_ok=True)
        runs = []
        source_count = len(pieces) // len(spans) if spans else 0
        for number, span in enumerate(spans):
            name = raw_objects.compute_stem(f"{wave}\n{span}", plan.settings_sha256)
            writer = sorted_runs.RunWriter(folder, name, limit=limit, unique=False)
            for piece in pieces[number * source_count : (number + 1) * source_count]:
                for batch in _deserialize_batches(piece):
                    writer.append(batch)
            runs += [(span[0], run) for run in writer.close()]
        return runs


@ray.remote
def write_survey_and_delete_runs(instance: Instance, corpus_survey: Survey) -> None:
    """Write the survey that is used for packing, and delete the runs that the instance has read.

    Call it when all instances have gathered their records.
    """
    plan = _read_plan(instance)
    with disk_full_errors(plan.progress):
        shard_progress.write_progress(corpus_survey, survey.STEM, plan.progress)
    # Delete files only: the folder of the gathered runs is in the same folder, and is still needed.
    for path in plan.scratch.iterdir():
        if path.is_file():
            path.unlink(missing_ok=True)


@ray.remote
def finish_instance(
    instance: Instance, corpus_survey: Survey, packed: dict[PackingUnit, PackedUnit]
) -> None:
    """Write the instance's manifests, and delete its scratch folder. This is its last task."""
    plan = _read_plan(instance)
    with disk_full_errors(plan.output):
        manifests.write_manifests(corpus_survey, packed, plan)
    shutil.rmtree(plan.scratch, ignore_errors=True)
    with suppress(OSError):
        plan.scratch.parent.rmdir()


# It asks for no core, because it must not wait until another task has finished.
@ray.remote(num_cpus=0)
def write_ended_file(message: str) -> None:
    """Write the job's error message, or "" for success, to the instance's file ENDED."""
    atomic_file.write_file(Path(os.environ[ENDED]), json.dumps(message).encode())


def compute_spans(units: Sequence[PackingUnit]) -> list[Span]:
    """Return for each first folder the range of hashes that its units cover.

    The units of one folder must be neighbours.
    """
    units_by_folder: dict[str, list[PackingUnit]] = {}
    for unit in units:
        units_by_folder.setdefault(unit.folder, []).append(unit)
    spans = []
    for folder, neighbours in units_by_folder.items():
        cuts = list(
            iter_hash_ranges(neighbours[0].count, neighbours[0].number, neighbours[-1].number + 1)
        )
        spans.append((folder, cuts[0][0], cuts[-1][1]))
    return spans


def _serialize_batches(batches: Sequence[pa.RecordBatch]) -> np.ndarray:
    """Return the batches as an Arrow IPC stream (uint8); a sliced batch gives only its own rows."""
    sink = pa.BufferOutputStream()
    if batches:
        with pa.ipc.new_stream(sink, batches[0].schema) as stream:
            for batch in batches:
                stream.write_batch(batch)
    return np.frombuffer(sink.getvalue(), np.uint8)


def _deserialize_batches(content: np.ndarray) -> list[pa.RecordBatch]:
    """Return the batches of a stream. Their data stays in the object store and is not copied."""
    return [*pa.ipc.open_stream(pa.py_buffer(content))] if len(content) else []
