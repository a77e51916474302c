"""Lines of a log stream: the last ones, followed, those before, after or around a line.

A line's id is its time and a digest of its text. GetLogEvents finds a time without reading the
lines before it.
"""

import re
import secrets
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from trainyard.aws_clients import service_errors
from trainyard.common.errors import ServiceError
from trainyard.console.account_cache import Account
from trainyard.console.log_streams import Stream
from trainyard.console.template_filters import plain
from trainyard.runs.execution import event_id

CUT = 2_000
"""Most characters shown of a line; the rest is behind a link."""

PAGES = 40
"""Most requests for one page of the console: CloudWatch may answer with empty pages."""

LONGEST = 200
"""Most characters of a search; a pattern of CloudWatch's has at most 1,024."""

_ID = re.compile(r"(\d{1,15})-([0-9a-f]{8})")
_ERROR = re.compile(
    r"(?<![\w-])(?:error|critical|fatal)(?![\w-]|\s*[=:]\s*[-+.\d])|\b\w+(?-i:Error|Exception)\b"
    r"|\btraceback \(most|\bcore dumped\b|\bout of memory\b",
    re.IGNORECASE,
)
_WARNING = re.compile(r"\b\w*warn(?:ing)?\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Line:
    """An event of the log."""

    at: int
    """Time in milliseconds since the epoch."""
    id: str
    text: str
    """Text as a terminal would show it, at most ``CUT`` characters."""
    length: int
    """Number of characters of the whole message."""
    overwritten: int
    """Number of carriage returns that overwrote it, as progress bars do."""

    @classmethod
    def of(cls, event: dict[str, Any]) -> "Line":
        """Return the line of an event of CloudWatch."""
        at, message = event.get("timestamp", 0), event.get("message", "")
        parts = message.rstrip("\r\n").rsplit("\r", 1)
        again = message.rstrip("\r\n").count("\r")
        text = plain(parts[-1][: CUT * 2])[:CUT]
        return cls(at, event_id(event), text, len(message), again)

    @property
    def is_whole(self) -> bool:
        """True if the text is the whole message."""
        return self.length <= CUT and not self.overwritten

    @property
    def level(self) -> str:
        """Level by its words: ``error``, ``warning`` or empty."""
        return level(self.text)


def level(text: str) -> str:
    """Return ``error``, ``warning`` or empty, by the words of a line."""
    if _ERROR.search(text):
        return "error"
    return "warning" if _WARNING.search(text) else ""


@dataclass(frozen=True, slots=True)
class Page:
    """Some lines in order of time."""

    lines: tuple[Line, ...]
    has_older: bool
    has_newer: bool


def beginning(account: Account, stream: Stream, count: int) -> Page:
    """Return the first lines."""
    found = list(islice(_forward(account, stream, 0, count + 1), count + 1))
    return Page(tuple(found[:count]), False, len(found) > count)


def end(account: Account, stream: Stream, count: int) -> Page:
    """Return the last lines."""
    found = list(islice(_backward(account, stream, None, count + 1), count + 1))
    return Page(tuple(found[:count][::-1]), len(found) > count, False)


def before(account: Account, stream: Stream, line: str, count: int) -> Page:
    """Return the lines before that one."""
    found = list(islice(_before(account, stream, line, count + 1), count + 1))
    return Page(tuple(found[:count][::-1]), len(found) > count, True)


def after(account: Account, stream: Stream, line: str, count: int) -> Page:
    """Return the lines after that one."""
    found = list(islice(_after(account, stream, line, count + 1), count + 1))
    return Page(tuple(found[:count]), True, len(found) > count)


def around(account: Account, stream: Stream, line: str, count: int) -> Page:
    """Return that line with the lines around it.

    Raises:
        ServiceError: the log has no such line (any more).
    """
    marked = Line.of(event(account, stream, line))
    older = before(account, stream, line, count // 2)
    newer = after(account, stream, line, count - count // 2)
    return Page((*older.lines, marked, *newer.lines), older.has_older, newer.has_newer)


def event(account: Account, stream: Stream, line: str) -> dict[str, Any]:
    """Return the whole event of a line.

    Raises:
        ServiceError: the log has no such line (any more).
    """
    at = _time(line)
    for one in _events(account, stream, startTime=at, endTime=at + 1, startFromHead=True):
        if Line.of(one).id == line:
            return one
    raise ServiceError(f"line {line} is not in log stream {stream.name}: it may have expired")


def search(
    account: Account, stream: Stream, words: str, count: int, token: str = ""
) -> tuple[tuple[Line, ...], str]:
    """Return the first lines that contain the words literally, and the token to continue with;
    empty at the end.

    Raises:
        ServiceError: CloudWatch refuses.
    """
    kept = "".join(c for c in words[:LONGEST] if c.isprintable())
    pattern = '"' + kept.replace("\\", "\\\\").replace('"', '\\"') + '"'
    found: list[dict[str, Any]] = []
    for _ in range(PAGES):
        with service_errors(f"searching log stream {stream.name}"):
            page = account.logs.filter_log_events(
                logGroupName=stream.group,
                logStreamNames=[stream.name],
                filterPattern=pattern,
                limit=count - len(found),
                **({"nextToken": token} if token else {}),
            )
        found += page.get("events", [])
        token = page.get("nextToken", "")
        if not token or len(found) >= count:
            break
    return tuple(Line.of(event) for event in found), token


def events(account: Account, stream: Stream) -> Iterator[dict[str, Any]]:
    """Iterate over all events from the beginning, a page at a time."""
    return _events(account, stream, pages=None, startFromHead=True)


def _before(account: Account, stream: Stream, line: str, count: int) -> Iterator[Line]:
    """Iterate over the lines before that one, latest first."""
    at = _time(line)
    return _past(_backward(account, stream, at + 1, count), line, at)


def _after(account: Account, stream: Stream, line: str, count: int) -> Iterator[Line]:
    at = _time(line)
    return _past(_forward(account, stream, at, count), line, at)


def _past(lines: Iterable[Line], line: str, at: int) -> Iterator[Line]:
    """Iterate over the lines after that one, including those of its millisecond."""
    is_past = False
    for one in lines:
        if is_past or one.at != at:
            is_past = True
            yield one
        is_past = is_past or one.id == line


def _forward(account: Account, stream: Stream, since: int, count: int) -> Iterator[Line]:
    how = {"startTime": since} if since else {}
    found = _events(account, stream, startFromHead=True, limit=_limit(count), **how)
    return (Line.of(one) for one in found)


def _backward(account: Account, stream: Stream, until: int | None, count: int) -> Iterator[Line]:
    how = {"endTime": until} if until is not None else {}
    found = _events(account, stream, startFromHead=False, limit=_limit(count), **how)
    return (Line.of(one) for one in found)


def _limit(count: int) -> int:
    return min(10_000, count + 50)  # some share the millisecond of the omitted line


def _events(
    account: Account, stream: Stream, pages: int | None = PAGES, **how: Any
) -> Iterator[dict[str, Any]]:
    """Iterate over events in the given direction; a repeated token means the end."""
    token: str | None = None
    forth = how["startFromHead"]
    asked = 0
    while pages is None or asked < pages:
        page = fetch(account, stream, **how, **({"nextToken": token} if token else {}))
        found = page.get("events", [])
        yield from found if forth else reversed(found)
        following = page.get("nextForwardToken" if forth else "nextBackwardToken")
        if not following or following == token:
            return
        token, asked = following, asked + 1


def fetch(account: Account, stream: Stream, **how: Any) -> dict[str, Any]:
    """Return GetLogEvents' answer.

    Raises:
        ServiceError: CloudWatch refuses.
    """
    with service_errors(f"reading log stream {stream.name}"):
        found: dict[str, Any] = account.logs.get_log_events(
            logGroupName=stream.group, logStreamName=stream.name, **how
        )
        return found


def _time(line: str) -> int:
    if (match := _ID.fullmatch(line)) is None:
        said = f"line={line[:40]!r} is not a line's id"
        raise ServiceError(f"{said}: expected <milliseconds>-<8 hexadecimal digits>")
    return int(match[1])


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
