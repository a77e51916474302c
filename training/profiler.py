"""A trace of chosen steps by torch.profiler, for chrome://tracing and https://ui.perfetto.dev."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class Trace:
    """Every operator, kernel and collective of steps ``first`` … ``first + count - 1``.

    A training that is resumed after ``first`` gives none. No steps, no cost.
    """

    def __init__(self, folder: Path, first: int, count: int) -> None:
        self._folder, self._first, self._last = folder, first, first + count - 1
        self._profiler: Any = None

    @contextmanager
    def around(self, step: int) -> Iterator[None]:
        """One step; the file is written after the last one."""
        if step == self._first <= self._last:
            from torch.profiler import profile

            self._profiler = profile()  # the CPU's operators, and CUDA's where there is one
            self._profiler.start()
        yield
        if self._profiler is not None and step == self._last:
            self._profiler.stop()
            self._folder.mkdir(parents=True, exist_ok=True)
            path = self._folder / f"steps-{self._first}-{self._last}.json.gz"
            self._profiler.export_chrome_trace(str(path))
            self._profiler = None
