"""Shards raw objects on all cores, and knows which object a worker had that died.

``ProcessPoolExecutor`` was tried. A worker that was killed while others were still being started
left it waiting for ever (benchmarks/kills found it, Python 3.11: it joins a worker that it never
ended), and it cannot tell which task a dead worker had. Here every worker has a pipe of its own:
its end is seen at once, and no lock is shared that a dead worker could hold.

Processes are spawned: a fork would copy the locks of Arrow's and the tokenizer's threads as they
stand, and a fork server would stand between the job and its workers, which must die with it.
"""

import ctypes
import errno
import logging
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path

from errors import DataError, TrainyardError
from steps.shard.pace import INTERVAL, Pace
from steps.shard.plan import Plan
from steps.shard.raw import RawObject

log = logging.getLogger(__name__)

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
PR_SET_PDEATHSIG = 1  # linux/prctl.h
SPAWN = multiprocessing.get_context("spawn")


def shard_all(objects: Sequence[RawObject], plan: Plan, processes: int) -> list[str]:
    """Shard every object, in their order. What is wrong with those that cannot be read, by name.

    Raises:
        TrainyardError: a worker died, or the output is full.
    """
    count = max(1, min(processes, len(objects)))
    threads = max(1, processes // count)
    log.info("%d raw objects, %d processes of %d threads", len(objects), count, threads)
    pace = Pace(objects)
    if count == 1:
        _set_threads(threads)
        damaged = {}
        for raw, message in _each(objects, plan, pace.read):
            if message:
                damaged[raw.name] = message
            pace.done(raw)
    else:
        damaged = _pooled(objects, plan, pace, count, threads)
    pace.log()
    return [damaged[name] for name in sorted(damaged)]


@contextmanager
def room_on(output: Path) -> Iterator[None]:
    """Raises: TrainyardError: the file system of ``output`` is full, or its quota is used up."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise TrainyardError(
            f"{output}: {error.strerror}; raise shard.volume_gb, or make room and run again: "
            "what is finished stays, the rest is done"
        ) from None


def _each(
    objects: Iterable[RawObject], plan: Plan, advance: Callable[[int], None]
) -> Iterator[tuple[RawObject, str | None]]:
    """Shard one object after the other; each when it is finished, and what is wrong with it.

    While the disk takes the last shards of one object the next is read, but no further than one
    shard's worth of it: what waits for the disk is in memory.
    """
    # Only who shards pays for pandas and the readers (0.5 s), not the job that waits for it.
    from steps.shard import unit

    before: tuple[RawObject, Future] | None = None
    with ThreadPoolExecutor(1) as disk:
        for raw in objects:
            hold = _Hold(advance, before and before[1], plan.shard_bytes)
            with _named(raw, plan.output):
                try:
                    rest = unit.shard(raw, plan, hold.advance)
                except DataError as error:
                    rest = partial(str, error)
            if before:
                yield _ended(*before, plan)
            before = raw, disk.submit(rest)
        if before:
            yield _ended(*before, plan)


class _Hold:
    """Holds up who reads an object when it has read so much while that before is unfinished."""

    def __init__(self, advance: Callable[[int], None], before: Future | None, limit: int) -> None:
        self._advance, self._before, self._left = advance, before, limit

    def advance(self, size: int) -> None:
        self._left -= size
        if self._before and self._left < 0:
            futures.wait([self._before])
        self._advance(size)


def _ended(raw: RawObject, rest: Future, plan: Plan) -> tuple[RawObject, str | None]:
    with _named(raw, plan.output):
        return raw, rest.result()


@contextmanager
def _named(raw: RawObject, output: Path) -> Iterator[None]:
    """What is raised within names the object, or that there is no room."""
    try:
        with room_on(output):
            yield
    except Exception as error:
        error.add_note(f"The raw object was {raw.name}.")
        raise


class _Worker:
    """A process, and the pipe through which it is given one object after the other."""

    def __init__(self, plan: Plan, threads: int) -> None:
        self.pipe, theirs = SPAWN.Pipe()
        self.raw: RawObject | None = None
        """It is read."""
        self.written: RawObject | None = None
        """It was read, and is on its way to the disk."""
        self.process = SPAWN.Process(target=_serve, args=(theirs, plan, threads), daemon=True)
        self.process.start()
        theirs.close()  # else the pipe would not end with the worker

    @property
    def busy(self) -> bool:
        return bool(self.raw or self.written)

    def give(self, raw: RawObject | None) -> None:
        """An object, or word that there is none any more."""
        self.raw = raw
        try:
            self.pipe.send(raw)
        except OSError:
            pass  # it is dead: reading from the pipe will say so

    def hear(self, pace: Pace, waiting: deque[RawObject]) -> tuple[str, str] | None:
        """One message: of progress, or that an object was read, and it gets another of those that
        wait. What is wrong with an object: its name and the message.

        Raises:
            TrainyardError: the worker cannot go on, or is dead.
            RuntimeError: a defect; holds the worker's traceback.
        """
        try:
            kind, content = self.pipe.recv()
        except (EOFError, OSError):
            raise TrainyardError(self._obituary()) from None
        if kind == "read":
            pace.read(content)
            return None
        if kind == "failed":
            raise content
        if kind == "next":
            self.written = self.raw
            self.give(waiting.popleft() if waiting else None)
            return None
        raw, self.written = self.written, None
        pace.done(raw)
        return (raw.name, content) if content else None

    def _obituary(self) -> str:
        self.process.join()
        status = self.process.exitcode
        end = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        raw = self.raw or self.written
        return (
            f"{raw.name} ({raw.bytes / 1e6:,.1f} MB): a worker process died over it "
            f"({end}). SIGKILL most often means out of memory: take an instance type with more "
            "of it for each core, or lower shard.processes"
        )


def _pooled(
    objects: Sequence[RawObject], plan: Plan, pace: Pace, count: int, threads: int
) -> dict[str, str]:
    """Object → what is wrong with it."""
    waiting, damaged = deque(objects), {}
    crew: list[_Worker] = []
    try:
        for _ in range(count):
            crew.append(_Worker(plan, threads))
            crew[-1].give(waiting.popleft())
        while busy := {worker.pipe: worker for worker in crew if worker.busy}:
            for pipe in wait(list(busy), INTERVAL):
                if found := busy[pipe].hear(pace, waiting):
                    name, message = found
                    damaged[name] = message
            pace.tick()
    finally:  # what a killed worker had begun is begun again by the next run
        for worker in crew:
            worker.process.kill()
            worker.process.join()
            worker.pipe.close()
    return damaged


def _serve(pipe: Connection, plan: Plan, threads: int) -> None:
    """What a worker does, until there is nothing more to do or it is killed."""
    _die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the job, which ends us
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s", stream=sys.stdout)
    _set_threads(threads)
    try:
        for _, message in _each(_given(pipe), plan, lambda size: pipe.send(("read", size))):
            pipe.send(("done", message))
    except TrainyardError as error:
        pipe.send(("failed", error))
    except Exception:  # noqa: BLE001 (the job raises it again, with this traceback)
        pipe.send(("failed", RuntimeError(traceback.format_exc())))


def _given(pipe: Connection) -> Iterator[RawObject]:
    """The objects that the job gives this worker; the next one when it asks for it."""
    while (raw := pipe.recv()) is not None:
        yield raw
        pipe.send(("next", None))


def _set_threads(threads: int) -> None:
    """Tokenizer and Arrow get the cores that no other worker uses; an own setting stays."""
    import pyarrow

    os.environ.setdefault("RAYON_NUM_THREADS", str(threads))
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true" if threads > 1 else "false")
    pyarrow.set_cpu_count(threads)


def _die_with_parent() -> None:
    """An orphan would go on writing what the next run writes too: end when the parent does.

    On Linux the kernel sees to it, even while a long call into C holds Python's lock.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    parent = multiprocessing.parent_process()
    if parent is not None:
        if not parent.is_alive():  # it died while we were starting
            os._exit(1)
        threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()
