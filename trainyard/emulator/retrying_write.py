"""A record that is written when the disk takes it."""

import logging
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)

EVERY = 1.0  # seconds between attempts


class Late:
    """Calls ``write`` now, or again every second in a thread of its own until it does not fail.

    For what has happened already, such as the end of a job: a full disk must neither undo nor hide
    it. What has not happened yet is written before it is answered, and fails with the disk.
    """

    def __init__(self, write: Callable[[], None], what: str, every: float = EVERY) -> None:
        self._write, self._what, self._every = write, what, every
        self._lock = threading.Lock()
        self.pending = False
        """Whether the disk has something older, or nothing."""

    def __call__(self) -> None:
        try:
            self._write()
        except OSError as refused:
            with self._lock:
                if self.pending:
                    return
                self.pending = True
            log.error("%s is not on disk: %s; tried again until it is", self._what, refused)
            threading.Thread(target=self._again, daemon=True).start()

    def _again(self) -> None:
        pause = threading.Event()
        while self.pending:
            pause.wait(self._every)
            try:
                self._write()
            except OSError:
                continue
            self.pending = False
        log.warning("%s is on disk", self._what)
