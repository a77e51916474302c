"""How far the work is: a line in the log every few seconds."""

import logging
import time
from collections.abc import Sequence

from steps.shard.work import Task

log = logging.getLogger(__name__)

INTERVAL = 10  # seconds between two lines


class Pace:
    """Counts what is done, and logs it when it is told something and the time has come."""

    def __init__(self, what: str, tasks: Sequence[Task]) -> None:
        self._what, self._tasks, self._bytes = what, len(tasks), sum(one.bytes for one in tasks)
        self._done = self._done_bytes = self._read = 0
        self._started = self._logged = time.monotonic()

    def read(self, size: int) -> None:
        """``size`` bytes of records, as they are in memory, were read."""
        self._read += size
        self.tick()

    def done(self, task: Task) -> None:
        """This task is finished, or given up."""
        self._done += 1
        self._done_bytes += task.bytes
        self.tick()

    def tick(self) -> None:
        if time.monotonic() - self._logged >= INTERVAL:
            self.log()

    def log(self) -> None:
        """Such as ``12 of 40 units, 1,234.5 of 5,678.9 MB; 2,345.6 MB of records, 87.6 MB/s``."""
        self._logged = time.monotonic()
        log.info(
            "%d of %d %s, %s of %s MB; %s MB of records, %s MB/s",
            self._done,
            self._tasks,
            self._what,
            _mega(self._done_bytes),
            _mega(self._bytes),
            _mega(self._read),
            _mega(self._read / max(1e-3, self._logged - self._started)),
        )


def _mega(number: float) -> str:
    return f"{number / 1e6:,.1f}"
