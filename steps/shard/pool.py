"""Run tasks on all cores, and know which raw object or unit a dead worker was working on.

``ProcessPoolExecutor`` was tried. A worker that was killed while others were still being started
left it waiting forever (benchmarks/kills found it, Python 3.11: it joins a worker that it never
ended), and it cannot tell which task a dead worker had. Here every worker has a pipe of its own:
its end is seen at once, and workers share no lock that a dead one could hold.
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
from steps.shard.raw_objects import RawObject, ShardObject
from steps.shard.shard_plan import Plan
from steps.shard.shard_progress import Kind, PackedUnit, Read
from trainyard.common.errors import DataError, TrainyardError

# Run a task of the pool: a raw object to be read, or a unit to be packed.

Task = RawObject | ShardObject


def begin(task: Task, plan: Plan, advance: Callable[[int], None]) -> Callable[[], None]:
    """Do all of the task except waiting for the disk, which the returned function does.

    See ``read_object.sort`` and ``pack_unit.pack``: the job that waits for its workers needs no
    Arrow.
    """
    if isinstance(task, ShardObject):
        from steps.shard import pack_unit

        return pack_unit.pack(task, plan, advance)
    from steps.shard import read_object

    return read_object.sort(task, plan, advance)


log = logging.getLogger(__name__)

INTERVAL = 10  # seconds between two log lines


class Pace:
    """Counts what is done, and logs it at an update once INTERVAL has passed."""

    def __init__(self, task_word: str, tasks: Sequence[Task]) -> None:
        self._task_word, self._tasks = task_word, len(tasks)
        self._bytes = sum(task.bytes for task in tasks)
        self._done_count = self._done_bytes = self._read = 0
        self._start_time = self._log_time = time.monotonic()

    def read(self, size: int) -> None:
        """Count ``size`` bytes of records read, by their size in memory."""
        self._read += size
        self.tick()

    def count_done(self, task: Task) -> None:
        """Count this task as finished, or given up."""
        self._done_count += 1
        self._done_bytes += task.bytes
        self.tick()

    def tick(self) -> None:
        if time.monotonic() - self._log_time >= INTERVAL:
            self.log()

    def log(self) -> None:
        """Log a line such as ``12 of 40 units, 1,234.5 of 5,678.9 MB; 2,345.6 MB of records, 87.6
        MB/s``.
        """
        self._log_time = time.monotonic()
        log.info(
            "%d of %d %s, %s of %s MB; %s MB of records, %s MB/s",
            self._done_count,
            self._tasks,
            self._task_word,
            _mega(self._done_bytes),
            _mega(self._bytes),
            _mega(self._read),
            _mega(self._read / max(1e-3, self._log_time - self._start_time)),
        )


def _mega(number: float) -> str:
    return f"{number / 1e6:,.1f}"


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Pool:
    """Works off tasks; its processes stay for more, and end with it."""

    def __init__(self, plan: Plan, processes: int) -> None:
        self._plan, self.processes = plan, processes
        self._crew: list[_Worker] = []

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_: object) -> None:
        """Kill the workers; the next run begins their unfinished tasks again."""
        for worker in self._crew:
            worker.process.end()
        self._crew = []

    def work_off(self, task_word: str, tasks: Sequence[Task]) -> list[str]:
        """Do every task, in order; return the errors in the data of those that fail, by name.

        Args:
            task_word: word for the tasks, in the log.

        Raises:
            TrainyardError: a worker died, or the output is full.
        """
        count = max(1, min(self.processes, len(tasks)))
        threads = max(1, self.processes // count)
        log.info("%d %s, %d processes of %d threads", len(tasks), task_word, count, threads)
        pace = Pace(task_word, tasks)
        errors = {}
        if count == 1:
            set_threads(threads)
            results = _run_in_turn(tasks, self._plan, pace.read)
        else:
            results = self._run_in_pool(tasks, pace, count, threads)
        for task, message in results:
            pace.count_done(task)
            if message:
                errors[task.name] = message
        pace.log()
        return [errors[name] for name in sorted(errors)]

    def _run_in_pool(
        self, tasks: Sequence[Task], pace: Pace, count: int, threads: int
    ) -> Iterator[tuple[Task, str | None]]:
        if len(self._crew) != count:
            self.__exit__()
            for _ in range(count):
                self._crew.append(_Worker(self._plan, threads))
        waiting = deque(tasks)
        for worker in self._crew:
            worker.give(waiting.popleft())
        while busy := [worker for worker in self._crew if worker.busy]:
            # The wait ends after INTERVAL at the latest, so that the log goes on while nothing is
            # done.
            ready = wait([worker.process.pipe for worker in busy], INTERVAL)
            for worker in busy:
                if worker.process.pipe in ready and (result := worker.hear(pace, waiting)):
                    yield result
            pace.tick()


@contextmanager
def room_on(output: Path) -> Iterator[None]:
    """Raises: TrainyardError: the file system of ``output`` is full, or its quota is used up."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise TrainyardError(
            f"{output}: {error.strerror}; raise shard.volume_gb, or make room, and run again"
        ) from None


def _run_in_turn(
    tasks: Iterable[Task], plan: Plan, advance: Callable[[int], None]
) -> Iterator[tuple[Task, str | None]]:
    """Do one task after the other; yield each when it is finished, and the error in its data, if
    any.

    While the last files of a task go to the disk, the next one begins, but reads no further than
    one shard's worth: all that waits for the disk is in memory.
    """
    previous: tuple[Task, Future] | None = None
    with ThreadPoolExecutor(1) as disk:
        for task in tasks:
            hold = _Hold(advance, previous and previous[1], plan.shard_bytes)
            with _name_errors(task, plan.output):
                try:
                    finish: Callable[[], str | None] = begin(task, plan, hold.advance)
                except DataError as error:
                    # It takes the same way as a success, so that results keep the tasks' order.
                    finish = partial(str, error)
            if previous:
                yield _wait_for_end(*previous, plan)
            previous = task, disk.submit(finish)
        if previous:
            yield _wait_for_end(*previous, plan)


class _Hold:
    """Blocks a task that has read ``limit`` bytes while the task before is still being written."""

    def __init__(self, advance: Callable[[int], None], previous: Future | None, limit: int) -> None:
        self._advance, self._previous, self._bytes_left = advance, previous, limit

    def advance(self, size: int) -> None:
        self._bytes_left -= size
        if self._previous and self._bytes_left < 0:
            futures.wait([self._previous])
        self._advance(size)


def _wait_for_end(task: Task, writing: Future, plan: Plan) -> tuple[Task, str | None]:
    with _name_errors(task, plan.output):
        return task, writing.result()


@contextmanager
def _name_errors(task: Task, output: Path) -> Iterator[None]:
    """Name the task in any error raised within; or say that the disk is full."""
    try:
        with room_on(output):
            yield
    except Exception as error:
        error.add_note(f"While working on {task.name}.")
        raise


class _Worker:
    """A process that is given one task after the other."""

    def __init__(self, plan: Plan, threads: int) -> None:
        self.process = WorkerProcess(_serve, plan, threads)
        self.task: Task | None = None
        """Task that the worker is doing."""
        self.writing_task: Task | None = None
        """Task that is done, and on its way to the disk."""

    @property
    def busy(self) -> bool:
        return bool(self.task or self.writing_task)

    def give(self, task: Task | None) -> None:
        """Send a task, or None to say that there are no more."""
        self.task = task
        self.process.send(task)

    def hear(self, pace: Pace, waiting: deque[Task]) -> tuple[Task, str | None] | None:
        """Handle one message: progress; a task done, after which the worker gets the next of those
        that wait; or a task finished, which is returned with the error in its data, if any.

        Raises:
            TrainyardError: the worker cannot go on, or is dead.
            RuntimeError: a bug; holds the worker's traceback.
        """
        kind, content = self.process.receive(self._obituary)
        if kind == "read":
            pace.read(content)
            return None
        if kind == "next":
            self.writing_task = self.task
            self.give(waiting.popleft() if waiting else None)
            return None
        task, self.writing_task = self.writing_task, None
        assert task is not None  # it was the worker's "next" before it was "done"
        return task, content

    def _obituary(self, end: str) -> str:
        task = self.task or self.writing_task
        assert task is not None  # only busy workers are listened to
        return (
            f"{task.name} ({task.bytes / 1e6:,.1f} MB): a worker process died while working on it "
            f"({end}). SIGKILL most often means out of memory: take an instance type with more "
            "of it for each core, or lower shard.processes"
        )


def _serve(pipe: Connection, plan: Plan, threads: int) -> None:
    """Run a worker until it is killed, or the job is dead."""
    set_threads(threads)
    with suppress(EOFError):
        # Once for each kind of task: None ends the raw objects, and the units come next.
        while True:
            for _, message in _run_in_turn(
                _receive_tasks(pipe), plan, lambda size: pipe.send(("read", size))
            ):
                pipe.send(("done", message))


def _receive_tasks(pipe: Connection) -> Iterator[Task]:
    """Yield the tasks of one kind that the job gives this worker; ask for the next when needed."""
    while (task := pipe.recv()) is not None:
        yield task
        pipe.send(("next", None))


def set_threads(threads: int) -> None:
    """Give tokenizer and Arrow the cores that no other worker uses; your own setting stays."""
    import pyarrow

    os.environ.setdefault("RAYON_NUM_THREADS", str(threads))
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true" if threads > 1 else "false")
    pyarrow.set_cpu_count(threads)


# Have the pool read raw objects and pack units; return the records of all of them.

TaskKind = TypeVar("TaskKind", bound=Task)


def read_objects(objects: Sequence[RawObject], plan: Plan, pool: Pool) -> list[Read]:
    """Read the raw objects. Raises as ``_work_off``."""
    stems = {raw: raw.unit for raw in objects}
    return [*_work_off("raw objects", Read, stems, plan, pool).values()]


def pack_units(
    units: Sequence[ShardObject], plan: Plan, pool: Pool
) -> dict[ShardObject, PackedUnit]:
    """Pack the units. Raises as ``_work_off``."""
    return _work_off("units", PackedUnit, {unit: unit.stem for unit in units}, plan, pool)


def _work_off(
    task_word: str, kind: type[Kind], stems: Mapping[TaskKind, str], plan: Plan, pool: Pool
) -> dict[TaskKind, Kind]:
    """Return each task's record, of which ``stems`` has the stem.

    Raises:
        DataError: some objects cannot be read, or values are out of range; it names up to NAMED.
        TrainyardError: a worker is done and its record is not there, or damaged.
    """
    check_data(pool.work_off(task_word, [*stems]) if stems else [])
    return {task: read_record(kind, stem, plan) for task, stem in stems.items()}


def read_record(kind: type[Kind], stem: str, plan: Plan) -> Kind:
    """Return the record of finished work. Raises: TrainyardError: it is missing, or damaged."""
    record = shard_progress.read(kind, stem, plan.progress)
    if record is None:
        raise TrainyardError(
            f"{plan.progress / stem}.json: the record of finished work is missing or damaged; "
            "look at the disk, and run the step again"
        )
    return record


def check_data(damaged: Sequence[str]) -> None:
    """Raises: DataError: there are errors in the data; it has up to NAMED of them."""
    if damaged:
        more = f"; and {len(damaged) - MAX_OBJECTS} more" if len(damaged) > MAX_OBJECTS else ""
        raise DataError("; ".join(damaged[:MAX_OBJECTS]) + more)
