"""Where a rank's time goes.

    data              waiting for the loader, and the copy to the device
    forward_backward  the model's own work, and what of the communication hides behind it
    communication     standing still until the other ranks are there, see below
    optimizer         clipping (with the norm's collective where weights are sharded) and the update
    checkpoint        the copy that a save stops the training for

What is left of a step is the loop's own (a metric line, the learning rate).

Communication is what can be told apart from outside: the two sums over all ranks in a step (its
units, its loss), and the wait at the end of the backward pass, from when this rank's own gradients
are computed until everybody's are added up. With ddp and smddp that is all of it. The rest cannot
be told apart and stays in forward_backward: with fsdp the gathering of the weights, with tensor and
pipeline parallel the exchange inside and between layers, with deepspeed and smp all but
the sums; the trace of ``profile_steps`` shows it. A rank that waits for a slower one counts as
communication, too.
"""

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch


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


PARTS = ("data", "forward_backward", "communication", "optimizer", "checkpoint")


class Clock:
    """Adds up the time between marks, by part.

    On CUDA a mark is an event on the current stream, so nothing waits for the device before
    ``read`` does, at a metric line; elsewhere it is the time of day.
    """

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._last = self._now()
        self._spans: list[tuple[str, object, object]] = []
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def mark(self, part: str) -> None:
        """What passed since the last mark belongs to ``part``."""
        now = self._now()
        if self._cuda:
            self._spans.append((part, self._last, now))
        else:
            self._seconds[part] += now - self._last
        self._last = now

    def skip(self) -> None:
        """What passed since the last mark belongs to nothing."""
        self._last = self._now()

    def read(self) -> dict[str, float]:
        """Seconds of each part since the last reading; waits for the device."""
        if self._spans:
            self._spans[-1][2].synchronize()
            for part, begin, end in self._spans:
                self._seconds[part] += begin.elapsed_time(end) / 1000
            self._spans = []
        seconds = {part: self._seconds[part] for part in PARTS}
        self._seconds.clear()
        return seconds

    def _now(self) -> object:
        if not self._cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event
