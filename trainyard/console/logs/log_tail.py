"""The end of a log stream, followed: new events are read once, for all readers."""

import secrets
import threading
from collections import deque

from trainyard.console.account_cache import Account
from trainyard.console.logs.log_lines import Line, fetch
from trainyard.console.logs.log_streams import Stream

KEPT = 500
"""Lines on a page when it is opened."""

BEHIND = 5
"""Pages (of at most 1 MB) read at once; if a log grows faster, the events between are left out."""

HOUR = 3_600.0


class Tail:
    """The last lines of a stream, numbered in the log's order since the first request.

    Numbers have a gap where lines were left out.
    """

    def __init__(self, account: Account, stream: Stream) -> None:
        self.epoch = secrets.token_hex(4)
        """Id that differs for another numbering of the same stream."""
        self._account, self._stream = account, stream
        self._lines: deque[tuple[int, Line]] = deque(maxlen=KEPT)
        self._next, self._token = 1, ""
        self._lock = threading.Lock()
        self._is_whole = False
        self._begin()

    @property
    def lines(self) -> list[tuple[int, Line]]:
        """(number, line) of each line, the newest last."""
        with self._lock:
            return list(self._lines)

    @property
    def has_older(self) -> bool:
        """True if there are lines before these."""
        with self._lock:
            return bool(self._lines) and (not self._is_whole or self._lines[0][0] > 1)

    def poll(self) -> int:
        """Read new events; return the number of the next line.

        Raises:
            ServiceError: CloudWatch refuses.
        """
        with self._lock:
            if not self._token:  # the service has not given a token to continue
                return self._next
            for _ in range(BEHIND):
                page = fetch(self._account, self._stream, nextToken=self._token, startFromHead=True)
                self._add(page.get("events", []))
                token = page.get("nextForwardToken", self._token)
                if token == self._token:
                    return self._next
                self._token = token
                if not page.get("events"):
                    return self._next
            self._next += 1
            self._begin()
            return self._next

    def _begin(self) -> None:
        """Read the last lines; a page with a few long lines is not enough for a browser."""
        page = fetch(self._account, self._stream, limit=KEPT, startFromHead=False)
        self._token = page.get("nextForwardToken", "")
        events, back = page.get("events", []), page.get("nextBackwardToken")
        for _ in range(BEHIND):
            if len(events) >= KEPT or not back:
                break
            how = {"limit": KEPT - len(events), "nextToken": back, "startFromHead": False}
            page = fetch(self._account, self._stream, **how)
            events = page.get("events", []) + events
            self._is_whole = page.get("nextBackwardToken") == back
            if self._is_whole:
                break
            back = page.get("nextBackwardToken")
        self._add(events)

    def _add(self, events: list[dict]) -> None:
        for event in events:
            self._lines.append((self._next, Line.of(event)))
            self._next += 1


def tail(account: Account, stream: Stream) -> Tail:
    """Return the stream's end as known; ``polled`` reads more."""
    return account.lately(
        ("tail", stream.group, stream.name), lambda: Tail(account, stream), 24 * HOUR
    )


def polled(account: Account, stream: Stream) -> int:
    """Read new events, once for all readers; return the number of the next line."""
    one = tail(account, stream)
    return account.lately(("polled", stream.name, one.epoch), one.poll)
