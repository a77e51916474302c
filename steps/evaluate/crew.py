"""Processes that each do one task: the first that fails is the job's error, and ends the others."""

import logging
import multiprocessing
import signal
import sys
import traceback
from collections.abc import Callable, Generator, Sequence
from multiprocessing.connection import wait
from typing import Any, TypeVar

from trainyard.common.errors import TrainyardError
from trainyard.common.orphans import die_with_parent

SPAWN = multiprocessing.get_context("spawn")  # a fork would copy locks of torch's threads

Result = TypeVar("Result")


def in_order(
    what: str,
    work: Callable[..., None],
    tasks: Sequence[tuple[Any, ...]],
    results: Sequence[Result],
) -> Generator[Result, None, None]:
    """``work(*task)`` in a process for each task; each one's result when it and those before it
    are done.

    Args:
        what: a process is called, with its number from 1.
        work: of a module, and its arguments can be pickled.

    Raises:
        TrainyardError: of the first that fails, with the process's name, or that it died.
        RuntimeError: a defect; holds the process's traceback.
    """
    crew: list[_Process] = []
    try:
        for number, task in enumerate(tasks, 1):
            crew.append(_Process(f"{what} {number} of {len(tasks)}", work, task))
        for process, result in zip(crew, results, strict=True):
            while not process.done:
                _hear(crew)
            yield result
    finally:
        for process in crew:
            process.end()


class _Process:
    """A process, and the pipe that it tells its end through."""

    def __init__(self, name: str, work: Callable[..., None], task: tuple[Any, ...]) -> None:
        self.name, self.done = name, False
        self.pipe, theirs = SPAWN.Pipe(duplex=False)
        self._process = SPAWN.Process(target=_serve, args=(theirs, work, task), daemon=True)
        self._process.start()
        theirs.close()  # else the pipe would not end with the process

    def hear(self) -> None:
        """Its last word. Raises: what it failed with."""
        try:
            failed = self.pipe.recv()
        except (EOFError, OSError):
            raise TrainyardError(self._obituary()) from None
        if isinstance(failed, TrainyardError):
            raise type(failed)(f"{self.name}: {failed}")
        if failed is not None:
            raise RuntimeError(f"{self.name}: {failed}")
        self.done = True

    def end(self) -> None:
        self._process.kill()
        self._process.join()
        self.pipe.close()

    def _obituary(self) -> str:
        self._process.join()
        status = self._process.exitcode or 0
        end = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        return (
            f"{self.name} died ({end}). SIGKILL most often means out of memory: take an instance "
            "type with more of it, or lower evaluate.processes"
        )


def _hear(crew: Sequence[_Process]) -> None:
    """Wait until one of them has something to say, or is dead."""
    busy = {process.pipe: process for process in crew if not process.done}
    for pipe in wait(list(busy)):
        busy[pipe].hear()


def _serve(pipe: Any, work: Callable[..., None], task: tuple[Any, ...]) -> None:
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the job, which ends us
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s", stream=sys.stdout)
    try:
        work(*task)
        pipe.send(None)
    except TrainyardError as error:
        pipe.send(error)
    except Exception:  # noqa: BLE001 (the job raises it again, with this traceback)
        pipe.send(traceback.format_exc())
