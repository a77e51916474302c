"""Run tasks on all cores, and report which raw object or unit a dead worker was working on.

``ProcessPoolExecutor`` was tried. If a worker was killed while others were still being started, the
executor waited forever (found by benchmarks/kills with Python 3.11: it joins a worker that it never
ended). It also cannot tell which task a dead worker had. Here every worker has a pipe of its own:
the pipe closes as soon as the worker dies, and workers share no lock that a dead one could hold.
"""

import errno
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TypeVar

from steps.installed import WorkerProcess
from steps.shard import shard_progress
from steps.shard.manifests import MAX_OBJECTS
from steps.shard.raw_objects import PackingUnit, RawObject
from steps.shard.shard_plan import Plan
from steps.shard.shard_progress import Kind, PackedUnit, ReadResult
from trainyard.common.errors import DataError, TrainyardError

# A task of the pool is a raw object to read, or a unit to pack.

Task = RawObject | PackingUnit


def begin_task(task: Task, plan: Plan, advance: Callable[[int], None]) -> Callable[[], None]:
    """Read or pack the task, without waiting for the disk; return a function that waits for it.

    See ``read_object.write_sorted_runs`` and ``pack_unit.pack_unit``. They are imported here
    because the process that only waits for its workers does not need Arrow.
    """
    if isinstance(task, PackingUnit):
        from steps.shard import pack_unit

        return pack_unit.pack_unit(task, plan, advance)
    from steps.shard import read_object

    return read_object.write_sorted_runs(task, plan, advance)


log = logging.getLogger(__name__)

INTERVAL = 10  # seconds between two log lines


class ProgressLogger:
    """Counts finished tasks and bytes read, and logs the progress at most once per INTERVAL."""

    def __init__(self, task_word: str, tasks: Sequence[Task]) -> None:
        self._task_word, self._tasks = task_word, len(tasks)
        self._bytes = sum(task.bytes for task in tasks)
        self._done_count = self._done_bytes = self._read = 0
        self._start_time = self._log_time = time.monotonic()

    def count_bytes(self, size: int) -> None:
        """Add ``size`` bytes of records, measured in memory, to the bytes read."""
        self._read += size
        self.log_if_due()

    def count_done(self, task: Task) -> None:
        """Count this task as done, whether it succeeded or failed."""
        self._done_count += 1
        self._done_bytes += task.bytes
        self.log_if_due()

    def log_if_due(self) -> None:
        """Log the progress if INTERVAL has passed since the last line."""
        if time.monotonic() - self._log_time >= INTERVAL:
            self.log()

    def log(self) -> None:
        """Log the progress.

        The line reads, for example, ``12 of 40 units, 1,234.5 of 5,678.9 MB; 2,345.6 MB of records,
        87.6 MB/s``.
        """
        self._log_time = time.monotonic()
        log.info(
            "%d of %d %s, %s of %s MB; %s MB of records, %s MB/s",
            self._done_count,
            self._tasks,
            self._task_word,
            _format_millions(self._done_bytes),
            _format_millions(self._bytes),
            _format_millions(self._read),
            _format_millions(self._read / max(1e-3, self._log_time - self._start_time)),
        )


def _format_millions(number: float) -> str:
    return f"{number / 1e6:,.1f}"


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers that mean that there is no room for a file."""


class Pool:
    """Worker processes that do tasks. They are reused by later calls until the context ends."""

    def __init__(self, plan: Plan, processes: int) -> None:
        self._plan, self.processes = plan, processes
        self._crew: list[_Worker] = []

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_: object) -> None:
        """Kill the workers. The next run of the job starts their unfinished tasks again."""
        for worker in self._crew:
            worker.process.end()
        self._crew = []

    def run_tasks(self, task_word: str, tasks: Sequence[Task]) -> list[str]:
        """Do every task, and wait for all of them.

        Return the messages of the tasks that failed because of their data, sorted by task name.

        Args:
            task_word: what the log calls the tasks, such as ``units``.

        Raises:
            TrainyardError: a worker died, or the output's disk is full.
        """
        count = max(1, min(self.processes, len(tasks)))
        threads = max(1, self.processes // count)
        log.info("%d %s, %d processes of %d threads", len(tasks), task_word, count, threads)
        pace = ProgressLogger(task_word, tasks)
        errors = {}
        if count == 1:
            set_threads(threads)
            results = _run_one_by_one(tasks, self._plan, pace.count_bytes)
        else:
            results = self._run_in_pool(tasks, pace, count, threads)
        for task, message in results:
            pace.count_done(task)
            if message:
                errors[task.name] = message
        pace.log()
        return [errors[name] for name in sorted(errors)]

    def _run_in_pool(
        self, tasks: Sequence[Task], pace: ProgressLogger, count: int, threads: int
    ) -> Iterator[tuple[Task, str | None]]:
        """Yield (task, error in its data or None) for each task as it finishes."""
        if len(self._crew) != count:
            self.__exit__()
            for _ in range(count):
                self._crew.append(_Worker(self._plan, threads))
        waiting = deque(tasks)
        for worker in self._crew:
            worker.send_task(waiting.popleft())
        while busy := [worker for worker in self._crew if worker.is_busy]:
            # Wait at most INTERVAL, so that the log shows progress even while no task finishes.
            ready = wait([worker.process.pipe for worker in busy], INTERVAL)
            for worker in busy:
                if worker.process.pipe in ready and (
                    result := worker.receive_message(pace, waiting)
                ):
                    yield result
            pace.log_if_due()


@contextmanager
def disk_full_errors(output: Path) -> Iterator[None]:
    """Replace "no space left" errors that the block raises.

    Raises:
        TrainyardError: the file system of ``output`` is full, or its quota is used up.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise TrainyardError(
            f"{output}: {error.strerror}; raise shard.volume_gb, or make room, and run again"
        ) from None


def _run_one_by_one(
    tasks: Iterable[Task], plan: Plan, advance: Callable[[int], None]
) -> Iterator[tuple[Task, str | None]]:
    """Do one task after the other; yield (task, error in its data or None) when it is done.

    While the last files of a task are being written to the disk, the next task starts. It reads no
    more than the size of one shard until then, because data that waits for the disk is in memory.
    """
    previous: tuple[Task, Future] | None = None
    with ThreadPoolExecutor(1) as disk:
        for task in tasks:
            hold = _Hold(advance, previous and previous[1], plan.shard_bytes)
            with _name_errors(task, plan.output):
                try:
                    finish: Callable[[], str | None] = begin_task(task, plan, hold.count_bytes)
                except DataError as error:
                    # Queued like a success, so that results keep the order of the tasks.
                    finish = partial(str, error)
            if previous:
                yield _wait_for_end(*previous, plan)
            previous = task, disk.submit(finish)
        if previous:
            yield _wait_for_end(*previous, plan)


class _Hold:
    """Blocks a task that has read ``limit`` bytes until the previous task is on the disk."""

    def __init__(self, advance: Callable[[int], None], previous: Future | None, limit: int) -> None:
        self._advance, self._previous, self._bytes_left = advance, previous, limit

    def count_bytes(self, size: int) -> None:
        """Count ``size`` written bytes; above the limit, wait until the previous task has ended."""
        self._bytes_left -= size
        if self._previous and self._bytes_left < 0:
            futures.wait([self._previous])
        self._advance(size)


def _wait_for_end(task: Task, writing: Future, plan: Plan) -> tuple[Task, str | None]:
    """Wait until the task's files are on the disk; return (task, error in its data or None)."""
    with _name_errors(task, plan.output):
        return task, writing.result()


@contextmanager
def _name_errors(task: Task, output: Path) -> Iterator[None]:
    """Add the task's name to errors of the block, and replace those that mean a full disk."""
    try:
        with disk_full_errors(output):
            yield
    except Exception as error:
        error.add_note(f"While working on {task.name}.")
        raise


class _Worker:
    """A worker process, which does one task after the other."""

    def __init__(self, plan: Plan, threads: int) -> None:
        self.process = WorkerProcess(_run_worker, plan, threads)
        self.task: Task | None = None
        """Task that the worker is reading or packing."""
        self.writing_task: Task | None = None
        """Task that is done except that its last files are still being written to the disk."""

    @property
    def is_busy(self) -> bool:
        """Return whether the worker is doing a task, or still writing the files of one."""
        return bool(self.task or self.writing_task)

    def send_task(self, task: Task | None) -> None:
        """Send a task to the worker, or None to say that there are no more."""
        self.task = task
        self.process.send(task)

    def receive_message(
        self, pace: ProgressLogger, waiting: deque[Task]
    ) -> tuple[Task, str | None] | None:
        """Receive one message from the worker, and handle it.

        The messages are ``read`` (bytes of records read), ``next`` (a task is done except for
        writing, so the worker gets the next one of ``waiting``) and ``done`` (a task is on the
        disk). Return the task and the error in its data or None if the message is ``done``, and
        None otherwise.

        Raises:
            TrainyardError: the worker cannot continue, or has died.
            RuntimeError: there is a bug; the message contains the worker's traceback.
        """
        kind, content = self.process.receive(self._explain_death)
        if kind == "read":
            pace.count_bytes(content)
            return None
        if kind == "next":
            self.writing_task = self.task
            self.send_task(waiting.popleft() if waiting else None)
            return None
        task, self.writing_task = self.writing_task, None
        assert task is not None  # the worker sends "next" for a task before "done"
        return task, content

    def _explain_death(self, end: str) -> str:
        """Return the message for a worker that died; ``end`` says how its process ended."""
        task = self.task or self.writing_task
        assert task is not None  # messages are only received from busy workers
        return (
            f"{task.name} ({task.bytes / 1e6:,.1f} MB): a worker process died while working on it "
            f"({end}). SIGKILL most often means out of memory: use an instance type with more "
            "memory for each core, or lower shard.processes"
        )


def _run_worker(pipe: Connection, plan: Plan, threads: int) -> None:
    """Do tasks in a worker process until it is killed or the job's process has ended."""
    set_threads(threads)
    with suppress(EOFError):
        # One round for each kind of task: None ends the raw objects, then the units follow.
        while True:
            for _, message in _run_one_by_one(
                _receive_tasks(pipe), plan, lambda size: pipe.send(("read", size))
            ):
                pipe.send(("done", message))


def _receive_tasks(pipe: Connection) -> Iterator[Task]:
    """Yield tasks until the job sends None; after each one, tell the job to send the next."""
    while (task := pipe.recv()) is not None:
        yield task
        pipe.send(("next", None))


def set_threads(threads: int) -> None:
    """Let the tokenizer and Arrow use this many threads; keep variables that are set already."""
    import pyarrow

    os.environ.setdefault("RAYON_NUM_THREADS", str(threads))
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true" if threads > 1 else "false")
    pyarrow.set_cpu_count(threads)


# Read raw objects and pack units in the pool, and collect their progress records.

TaskKind = TypeVar("TaskKind", bound=Task)


def read_objects(objects: Sequence[RawObject], plan: Plan, pool: Pool) -> list[ReadResult]:
    """Read the raw objects; return their progress records. Raises as ``_run_tasks``."""
    stems = {raw: raw.unit for raw in objects}
    return [*_run_tasks("raw objects", ReadResult, stems, plan, pool).values()]


def pack_units(
    units: Sequence[PackingUnit], plan: Plan, pool: Pool
) -> dict[PackingUnit, PackedUnit]:
    """Pack the units; return their progress records. Raises as ``_run_tasks``."""
    return _run_tasks("units", PackedUnit, {unit: unit.stem for unit in units}, plan, pool)


def _run_tasks(
    task_word: str, kind: type[Kind], stems: Mapping[TaskKind, str], plan: Plan, pool: Pool
) -> dict[TaskKind, Kind]:
    """Run the tasks; return their progress records. ``stems``: {task: stem of its record's file}.

    Raises:
        DataError: objects cannot be read, or values are out of range; names up to MAX_OBJECTS.
        TrainyardError: a task is done, but its progress record is missing or damaged.
    """
    check_task_errors(pool.run_tasks(task_word, [*stems]) if stems else [])
    return {task: read_record(kind, stem, plan) for task, stem in stems.items()}


def read_record(kind: type[Kind], stem: str, plan: Plan) -> Kind:
    """Return a finished task's record; raise TrainyardError if it is missing or damaged."""
    record = shard_progress.read_progress(kind, stem, plan.progress)
    if record is None:
        raise TrainyardError(
            f"{plan.progress / stem}.json: the progress record of a finished task is missing or "
            "damaged; check the disk, and run the step again"
        )
    return record


def check_task_errors(errors: Sequence[str]) -> None:
    """Check that no task failed because of its data; ``errors``: messages of those that did.

    Raises:
        DataError: ``errors`` is not empty. The message contains up to MAX_OBJECTS of them.
    """
    if errors:
        more = f"; and {len(errors) - MAX_OBJECTS} more" if len(errors) > MAX_OBJECTS else ""
        raise DataError("; ".join(errors[:MAX_OBJECTS]) + more)
