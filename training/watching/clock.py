"""Measure where a rank's time goes.

    data              waiting for the loader, and the copy to the device
    forward_backward  the model's own work, and communication that runs concurrently
    communication     waiting for the other ranks, see below
    optimizer         clipping (with the norm's collective if weights are sharded) and the update
    checkpoint        the copy for which a save pauses the training

The rest of a step is the loop's own work (a metric line, the learning rate).

Communication is what can be measured separately: the two sums over all ranks in a step (its units,
its loss), and the wait at the end of the backward pass, from when this rank's own gradients are
computed until those of all ranks are summed. With ddp and smddp that is all communication. With the
other strategies the rest cannot be separated and is counted as forward_backward: with fsdp the
gathering of the weights, with tensor and pipeline parallel the exchange inside and between layers,
with deepspeed and smp all but the sums. The trace of ``profile_steps`` shows it. Waiting for a
slower rank counts as communication, too.
"""

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from trainyard.common.atomic_file import storage_errors


class Trace:
    """Record every operator, kernel and collective of steps ``first`` … ``first + count - 1``.

    A run that is resumed after ``first`` records nothing. With ``count`` 0 it costs nothing.
    """

    def __init__(self, folder: Path, first: int, count: int) -> None:
        self._folder, self._first, self._last = folder, first, first + count - 1
        self._profiler: Any = None

    @contextmanager
    def record_step(self, step: int) -> Iterator[None]:
        """Context around one step; after the last one the file is written."""
        if step == self._first <= self._last:
            from torch.profiler import profile

            self._profiler = profile()  # operators on the CPU, and on CUDA if there is a GPU
            self._profiler.start()
        yield
        if self._profiler is not None and step == self._last:
            self._profiler.stop()
            path = self._folder / f"steps-{self._first}-{self._last}.json.gz"
            with storage_errors(path):
                self._folder.mkdir(parents=True, exist_ok=True)
                self._profiler.export_chrome_trace(str(path))
            self._profiler = None


PARTS = ("data", "forward_backward", "communication", "optimizer", "checkpoint")


class Clock:
    """Sum the time between marks, by part of the step.

    On CUDA a mark is an event on the current stream, so the host does not wait for the device
    before ``read``, at a metric line. On other devices it is a clock reading.
    """

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._last = self._read_clock()
        self._spans: list[tuple[str, Any, Any]] = []
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def mark(self, part: str) -> None:
        """Add the time since the last mark to ``part``."""
        now = self._read_clock()
        if self._cuda:
            self._spans.append((part, self._last, now))
        else:
            self._seconds[part] += now - self._last
        self._last = now

    def skip(self) -> None:
        """Ignore the time since the last mark."""
        self._last = self._read_clock()

    def read(self) -> dict[str, float]:
        """Return the seconds of each part since the last reading, after waiting for the device."""
        if self._spans:
            self._spans[-1][2].synchronize()
            for part, begin, end in self._spans:
                self._seconds[part] += begin.elapsed_time(end) / 1000
            self._spans = []
        seconds = {part: self._seconds[part] for part in PARTS}
        self._seconds.clear()
        return seconds

    def _read_clock(self) -> Any:
        """Return an event on CUDA, and seconds on other devices."""
        if not self._cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event
