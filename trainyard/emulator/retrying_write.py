"""A record whose write is repeated until the disk accepts it."""

import logging
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)

EVERY = 1.0  # seconds between attempts


class Late:
    """Calls ``write`` now; if it fails, again every second in a separate thread until it succeeds.

    It is for events that have already happened, such as the end of a job: a full disk must neither
    undo nor hide them. Other records are written before the request is answered, which fails if the
    disk is full.
    """

    def __init__(self, write: Callable[[], None], label: str, every: float = EVERY) -> None:
        self._write, self._label, self._every = write, label, every
        self._lock = threading.Lock()
        self.pending = False
        """True while the disk has an older record, or none."""

    def __call__(self) -> None:
        try:
            self._write()
        except OSError as error:
            with self._lock:
                if self.pending:
                    return
                self.pending = True
            log.error("%s is not on disk: %s; retrying until it is", self._label, error)
            threading.Thread(target=self._retry_write, daemon=True).start()

    def _retry_write(self) -> None:
        pause = threading.Event()
        while self.pending:
            pause.wait(self._every)
            try:
                self._write()
            except OSError:
                continue
            self.pending = False
        log.warning("%s is on disk", self._label)
