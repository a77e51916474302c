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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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
        for raw in objects:
            if message := _shard(raw, plan, pace.read):
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


def _shard(raw: RawObject, plan: Plan, advance: Callable[[int], None]) -> str | None:
    """Shard one object; what is wrong with it, if it cannot be read."""
    # Only who shards pays for pandas and the readers (0.5 s), not the job that waits for it.
    from steps.shard import unit

    try:
        with room_on(plan.output):
            unit.shard(raw, plan, advance)
    except DataError as error:
        return str(error)
    return None


class _Worker:
    """A process, and the pipe through which it is given one object after the other."""

    def __init__(self, plan: Plan, threads: int) -> None:
        self.pipe, theirs = SPAWN.Pipe()
        self.raw: RawObject | None = None
        self.process = SPAWN.Process(target=_serve, args=(theirs, plan, threads), daemon=True)
        self.process.start()
        theirs.close()  # else the pipe would not end with the worker

    def give(self, raw: RawObject) -> None:
        self.raw = raw
        try:
            self.pipe.send(raw)
        except OSError:
            pass  # it is dead: reading from the pipe will say so

    def hear(self, pace: Pace) -> str | None:
        """One message: of progress, or that the object is done and what is wrong with it.

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
        raw, self.raw = self.raw, None
        pace.done(raw)
        return content

    def _obituary(self) -> str:
        self.process.join()
        status = self.process.exitcode
        end = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        return (
            f"{self.raw.name} ({self.raw.bytes / 1e6:,.1f} MB): a worker process died over it "
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
        while busy := {worker.pipe: worker for worker in crew if worker.raw}:
            for pipe in wait(list(busy), INTERVAL):
                worker = busy[pipe]
                name = worker.raw.name
                if message := worker.hear(pace):
                    damaged[name] = message
                if not worker.raw and waiting:
                    worker.give(waiting.popleft())
            pace.tick()
    finally:  # what a killed worker had begun is begun again by the next run
        for worker in crew:
            worker.process.kill()
            worker.process.join()
            worker.pipe.close()
    return damaged


def _serve(pipe: Connection, plan: Plan, threads: int) -> None:
    """What a worker does, until it is killed."""
    _die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the job, which ends us
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s", stream=sys.stdout)
    _set_threads(threads)
    while True:
        raw = pipe.recv()
        try:
            message = _shard(raw, plan, lambda size: pipe.send(("read", size)))
        except TrainyardError as error:
            pipe.send(("failed", error))
        except Exception:  # noqa: BLE001 (the job raises it again, with this traceback)
            pipe.send(("failed", RuntimeError(f"{raw.name}:\n{traceback.format_exc()}")))
        else:
            pipe.send(("done", message))


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
