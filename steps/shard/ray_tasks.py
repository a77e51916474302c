"""What Ray runs on the instances: read, compare keys, cut, gather, pack; nothing else is remote.

A task may run again: all that it writes has a name by its content and appears whole. Of a cluster
that the job starts itself, the tasks of an instance run there, beside its raw objects and its
output. On a cluster that somebody has, folders are shared, and any task runs anywhere.
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
from steps.shard.pool import room_on, set_threads
from steps.shard.raw_objects import File, RawObject, ShardObject
from steps.shard.ray_cluster import ENDED, JOB
from steps.shard.read_object import RUN_BYTES
from steps.shard.shard_plan import Plan
from steps.shard.shard_progress import PackedUnit, Read, RunFile
from steps.shard.survey import Survey, ranges
from steps.shard.survey_pass import Corpus
from trainyard.common import atomic_file
from trainyard.common.errors import DataError

GATHERED = "gathered"
"""Folder of the runs of an instance's own units, below those that it has read."""
LEFT_OUT = "left-out"
"""File with a byte for each record of an instance's runs: 1 if an equal one stays elsewhere."""

Span = tuple[str, int, int]
"""First folder, or "" for any, and a range of hashes."""
OwnRun = tuple[str, RunFile, int]
"""A run of an instance: first folder of its records, its file, and how many records stand before it
in the instance's runs."""


@dataclass(frozen=True)
class Place:
    """An instance: where its files are."""

    host: str
    words: tuple[str, ...] = ()
    """Arguments of the job; empty: those that the instance's own process was given."""


@functools.lru_cache(64)
def _job(place: Place) -> tuple[Plan, Path]:
    """Return the instance's plan and input folder."""
    # Ray runs a task on each core, so one task takes one thread.
    set_threads(1)
    options = arguments.parse([*place.words] or json.loads(os.environ[JOB]))
    return arguments.plan_of(options, place.host), arguments.input_of(options)


def _plan(place: Place) -> Plan:
    return _job(place)[0]


@dataclass(frozen=True)
class HostState:
    """What an instance sees before anything is read."""

    files: list[File]
    identity: str
    """The same on all instances of a job: their settings."""
    room: int
    """Bytes that its output has room for."""


@ray.remote
def list_raw_data(place: Place, hosts: Sequence[str]) -> HostState:
    """Prepare the output folder, and list the raw data."""
    plan, folder = _job(place)
    with room_on(plan.output):
        manifests.prepare(plan, hosts)
        files = raw_objects.files(folder) if folder.is_dir() else []
        identity = json.dumps([plan.settings, plan.max_bad_share])
        return HostState(files, identity, shutil.disk_usage(plan.output).free)


@ray.remote
def read(place: Place, raw: RawObject) -> Read | str:
    """Read a raw object into sorted runs; return the record, or what is wrong with its data."""
    plan, folder = _job(place)
    # The path is the one that the task's own instance has.
    raw = replace(raw, path=folder if raw.files else folder / raw.name)
    return _run_task(raw, Read, raw.unit, plan)


@ray.remote
def pack(place: Place, unit: ShardObject) -> PackedUnit | str:
    """Pack a unit; return the record, or what is wrong with its data."""
    return _run_task(unit, PackedUnit, unit.stem, _plan(place))


def _run_task(task: pool.Task, kind: type, stem: str, plan: Plan) -> Any:
    try:
        with room_on(plan.output):
            pool.begin(task, plan, lambda size: None)()
    except DataError as error:
        return str(error)
    return pool.read_record(kind, stem, plan)


@ray.remote
def keys(place: Place, names: Sequence[str], span: tuple[int, int]) -> tuple[Any, np.ndarray]:
    """Return keys of an instance's records in a range of hashes, and how many each run has."""
    paths = [_plan(place).scratch / name for name in names]
    [(batch, counts)] = sorted_runs.keys(paths, [span])
    return _bytes([batch]), counts


@ray.remote
def duplicates(corpus: Corpus, *streams: tuple[Any, np.ndarray]) -> list[Any]:
    """Return the counts of equal records in a range of hashes, then for each instance which of its
    records are left out.
    """
    result = corpus.duplicates([iter([(_batches(k)[0], counts)]) for k, counts in streams])
    # The masks are results of their own: each goes to its instance alone.
    return [replace(result, masks=[]), *map(bytes, result.masks)]


@ray.remote
def mark(
    place: Place, runs: Sequence[OwnRun], spans: Sequence[tuple[int, int]], *masks: bytes
) -> None:
    """Note which of an instance's records are left out; ``masks``: one for each range of hashes."""
    scratch = _plan(place).scratch
    records = sum(run.records for _, run, _ in runs)
    if not records:
        return
    with room_on(scratch):
        # A file of zeros to begin with, since the marks may take more than the memory.
        marks = np.memmap(scratch / LEFT_OUT, bool, "w+", shape=records)
        for (low, high), mask in zip(spans, masks, strict=True):
            if not any(mask):
                continue
            bits, first = np.unpackbits(np.frombuffer(mask, np.uint8)), 0
            for _, run, record_count in runs:
                start, stop = sorted_runs.open_run(scratch / run.name).places(low, high)
                count = stop - start
                begin = record_count + start
                marks[begin : begin + count] = bits[first : first + count]
                first += count
        marks.flush()


@ray.remote
def cut(place: Place, runs: Sequence[OwnRun], spans: Sequence[Span]) -> Any:
    """Return for each span keys and content of the records in these runs that stay; of one span
    alone not in a list, as Ray has it for one result.
    """
    scratch = _plan(place).scratch
    path = scratch / LEFT_OUT
    marks = np.memmap(path, bool, "r") if path.is_file() else None
    pieces: list[list[pa.RecordBatch]] = [[] for _ in spans]
    for folder, run_file, record_count in runs:
        run = sorted_runs.open_run(scratch / run_file.name)
        for number, (span_folder, low, high) in enumerate(spans):
            start, stop = run.places(low, high)
            if span_folder != folder or start == stop:
                continue
            records = run.select(low, high)
            mask = marks[record_count + start : record_count + stop] if marks is not None else None
            if mask is not None and mask.any():
                records = records.filter(pa.array(~np.asarray(mask)))
            pieces[number].append(records)
    results = [_bytes(batches) for batches in pieces]
    sorted_runs.open_run.cache_clear()  # its pages need not stay
    return results if len(results) > 1 else results[0]


@ray.remote
def gather(
    place: Place, wave: int, spans: Sequence[Span], *pieces: Any
) -> list[tuple[str, RunFile]]:
    """Write what all instances have of an instance's spans as runs; return each with its folder.

    ``pieces``: of the first span from each instance, then of the next. They are arguments: Ray
    begins once they are here, while a task that waits for them would have it start another worker.
    """
    plan = _plan(place)
    folder, limit = plan.scratch / GATHERED, min(RUN_BYTES, plan.shard_bytes)
    with room_on(folder):
        folder.mkdir(exist_ok=True)
        runs = []
        source_count = len(pieces) // len(spans) if spans else 0
        for number, span in enumerate(spans):
            name = raw_objects.stem(f"{wave}\n{span}", plan.settings)
            writer = sorted_runs.RunWriter(folder, name, limit=limit, unique=False)
            for piece in pieces[number * source_count : (number + 1) * source_count]:
                for batch in _batches(piece):
                    writer.append(batch)
            runs += [(span[0], run) for run in writer.close()]
        return runs


@ray.remote
def settle(place: Place, corpus_survey: Survey) -> None:
    """Write the survey, by which units are packed, and make room: all records are gathered."""
    plan = _plan(place)
    with room_on(plan.progress):
        shard_progress.write(corpus_survey, survey.STEM, plan.progress)
    # Files only: the folder of the gathered runs lies beside them, and stays.
    for path in plan.scratch.iterdir():
        if path.is_file():
            path.unlink(missing_ok=True)


@ray.remote
def finish(place: Place, corpus_survey: Survey, packed: dict[ShardObject, PackedUnit]) -> None:
    """Write the instance's manifests, last of all."""
    plan = _plan(place)
    with room_on(plan.output):
        manifests.finish(corpus_survey, packed, plan)
    shutil.rmtree(plan.scratch, ignore_errors=True)
    with suppress(OSError):
        plan.scratch.parent.rmdir()


# No core is asked for: the end must not wait for a task that still runs.
@ray.remote(num_cpus=0)
def end(message: str) -> None:
    """Tell this instance how the job has ended."""
    atomic_file.write(Path(os.environ[ENDED]), json.dumps(message).encode())


def spans_of(units: Sequence[ShardObject]) -> list[Span]:
    """Return the ranges of hashes of neighbouring units in each first folder."""
    units_by_folder: dict[str, list[ShardObject]] = {}
    for unit in units:
        units_by_folder.setdefault(unit.folder, []).append(unit)
    spans = []
    for folder, neighbours in units_by_folder.items():
        cuts = list(ranges(neighbours[0].count, neighbours[0].number, neighbours[-1].number + 1))
        spans.append((folder, cuts[0][0], cuts[-1][1]))
    return spans


def _bytes(batches: Sequence[pa.RecordBatch]) -> np.ndarray:
    """Return batches in Arrow's stream format: of a slice only what it shows."""
    sink = pa.BufferOutputStream()
    if batches:
        with pa.ipc.new_stream(sink, batches[0].schema) as stream:
            for batch in batches:
                stream.write_batch(batch)
    return np.frombuffer(sink.getvalue(), np.uint8)


def _batches(content: np.ndarray) -> list[pa.RecordBatch]:
    """Return the batches, which lie in the object store."""
    return [*pa.ipc.open_stream(pa.py_buffer(content))] if len(content) else []
