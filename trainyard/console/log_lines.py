"""Lines of a log stream: the last ones, those that follow, those before, after or around a line.

A line's id is its time and a digest of its text. GetLogEvents finds a time without reading the
lines before it.
"""

import re
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

KEPT = 500
"""Lines on a page of a log when it is opened."""

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
    token: str = ""
    """Of the log's end: where to go on (CloudWatch's nextForwardToken)."""


def beginning(account: Account, stream: Stream, count: int) -> Page:
    """Return the first lines."""
    found = list(islice(_forward(account, stream, 0, count + 1), count + 1))
    return Page(tuple(found[:count]), False, len(found) > count)


def end(account: Account, stream: Stream, count: int) -> Page:
    """Return the last lines, and the token of those that will follow."""
    how = {"limit": _limit(count), "startFromHead": False}
    last = fetch(account, stream, **how)
    back = last.get("nextBackwardToken", "")
    found = [Line.of(one) for one in reversed(last.get("events", []))]
    if len(found) <= count and back:
        earlier = _events(account, stream, **how, nextToken=back)
        found += map(Line.of, islice(earlier, count + 1 - len(found)))
    token = last.get("nextForwardToken", "")
    return Page(tuple(found[:count][::-1]), len(found) > count, False, token)


def newer(account: Account, stream: Stream, token: str) -> tuple[list[Line], str]:
    """Return the lines from a token on, at most 1 MB, and the token of those that will follow."""
    page = fetch(account, stream, nextToken=token, startFromHead=True)
    return [Line.of(one) for one in page.get("events", [])], page.get("nextForwardToken", token)


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
    forth = how["startFromHead"]
    asked = 0
    while pages is None or asked < pages:
        page = fetch(account, stream, **how)
        found = page.get("events", [])
        yield from found if forth else reversed(found)
        following = page.get("nextForwardToken" if forth else "nextBackwardToken")
        if not following or following == how.get("nextToken"):
            return
        how["nextToken"], asked = following, asked + 1


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
