"""Run a simulation for many seeds on all cores, and give rates with their exact intervals."""

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from rich.progress import Progress
from scipy.stats import binomtest

from benchmarks.harness import Figure
from trainyard.common.process import cores

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How much is measured, and where."""

    pairs: int
    """Pairs of simulated models, for each check and number of groups."""
    groups: tuple[int, ...]
    progress: Progress
    executor: Executor
    """A process for each core."""

    def each(self, what: str, run: Callable[[int], Found], times: int) -> list[Found]:
        """``run(seed)`` for as many seeds, on all cores."""
        bar = self.progress.add_task(what, total=times)
        found = []
        for one in self.executor.map(run, range(times), chunksize=20):
            found.append(one)
            self.progress.advance(bar)
        self.progress.remove_task(bar)
        return found


def processes() -> ProcessPoolExecutor:
    """Return an executor with a process for each core."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(cores(), context, _one_thread)


def _one_thread() -> None:
    """Small products on several threads would only wait for each other."""
    from threadpoolctl import threadpool_limits

    threadpool_limits(1)


def rate(hits: Sequence[bool]) -> Figure:
    """The share of hits, with the ends of its exact 95 % interval as its spread."""
    found = binomtest(sum(hits), len(hits)).proportion_ci(0.95, method="exact")
    return Figure((found.low, sum(hits) / len(hits), found.high))


def percent(found: Figure) -> str:
    """``4.8 (4.3–5.3)``."""
    return f"{100 * found.median:.1f} ({100 * found.low:.1f}–{100 * found.high:.1f})"


def data(found: Figure) -> dict[str, float]:
    """Return the figure for the file of all figures."""
    return {"rate": found.median, "low": found.low, "high": found.high}
