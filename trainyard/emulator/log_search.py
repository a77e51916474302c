"""FilterLogEvents: the events of some streams that match, found without reading every line.

What a pattern must have is looked for in the bytes of the file, and only the lines that have it are
parsed: a log of 200 MB is looked through in a fraction of a second. A call looks through a bounded
part, as on AWS, where a page may be empty and the next token goes on.
"""

import base64
import contextlib
import heapq
import json
import mmap
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from trainyard.emulator.api import ApiError
from trainyard.emulator.logs import Event, Stream, event_at, mapped

COST = 32 << 20
"""What a call may cost: bytes of the lines that it parses, and a ``SKIPPED``-th of the others."""

SKIPPED = 16
"""Bytes that are looked through in the time in which one is parsed, about."""

WINDOW = 8 << 20
"""Bytes of a file that are in memory at once."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """Terms, ``"quoted terms"``, ``-excluded``, ``?optional``; no JSON or field patterns."""

    every: tuple[str, ...]
    without: tuple[str, ...]
    either: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> "Pattern":
        """Raises ``InvalidParameterException`` for what is no such pattern."""
        if text.lstrip().startswith(("{", "[", "%")):
            message = f"The emulator filters by terms only, not by {text[:40]!r}."
            raise ApiError("InvalidParameterException", message)
        try:
            terms = shlex.split(text)
        except ValueError as wrong:
            raise ApiError(
                "InvalidParameterException", f"Invalid filter pattern: {wrong}"
            ) from None
        return cls(
            tuple(t for t in terms if t[:1] not in "-?"),
            tuple(t[1:] for t in terms if t[:1] == "-"),
            tuple(t[1:] for t in terms if t[:1] == "?"),
        )

    def matches(self, message: str) -> bool:
        return (
            all(t in message for t in self.every)
            and not any(t in message for t in self.without)
            and (not self.either or bool(self.every) or any(t in message for t in self.either))
        )

    @property
    def needles(self) -> list[bytes]:
        """Every line that matches has one of these in the file; of none all must be parsed."""
        terms = [max(self.every, key=len)] if self.every else self.either
        return [json.dumps(t, ensure_ascii=False)[1:-1].encode("utf-8", "replace") for t in terms]


@dataclass(slots=True)
class _Cursor:
    """How far one stream has been looked through."""

    stream: Stream
    data: mmap.mmap
    at: int
    """Offset of the line that is next, or of ``found``."""
    stop: int
    found: Event | None = None
    next: dict[bytes, int] = field(default_factory=dict)
    """Needle → the offset at which it is next; ``stop`` when it is nowhere."""

    def advance(self, pattern: Pattern, needles: Sequence[bytes], times: "Times", cost: int) -> int:
        """Look for the next match, at most for so much; what is left of ``cost``."""
        if self.found:
            self.at, self.found = self.found.stop, None
        while self.at < self.stop and cost > 0:
            start = self._candidate(needles)
            cost -= (start - self.at) // SKIPPED
            self.at = start
            if start >= self.stop:
                return cost
            event = event_at(self.data, start)
            cost -= event.stop - start
            if times.has(event) and pattern.matches(event.message):
                self.found = event
                return cost
            self.at = event.stop
        return cost

    def _candidate(self, needles: Sequence[bytes]) -> int:
        """Start of the next line that has a needle."""
        if not needles:
            return self.at
        for needle in needles:
            if self.next.get(needle, -1) < self.at:
                self.next[needle] = _find(self.data, needle, self.at, self.stop)
        first = min(self.next[needle] for needle in needles)
        if first >= self.stop:
            return self.stop
        return max(self.at, self.data.rfind(b"\n", self.at, first) + 1)


@dataclass(frozen=True, slots=True)
class Times:
    """From ``start`` on, before ``end``: milliseconds, None without such a limit."""

    start: int | None
    end: int | None

    @classmethod
    def of(cls, request: Mapping) -> "Times":
        return cls(request.get("startTime"), request.get("endTime"))

    def has(self, event: Event) -> bool:
        return (self.start is None or event.timestamp >= self.start) and (
            self.end is None or event.timestamp < self.end
        )


def search(
    streams: Sequence[Stream], pattern: Pattern, request: Mapping, most: int, size: int
) -> tuple[list[tuple[Stream, Event]], str | None]:
    """Matching events in the order of time, at most ``most`` and about ``size`` characters of
    them, and the token that goes on; None when all has been looked through."""
    times, begun = Times.of(request), _begun(request.get("nextToken"))
    with contextlib.ExitStack() as open_files:
        cursors = []
        for stream in streams:
            data = open_files.enter_context(mapped(stream.path))
            first, stop = stream.span(data, times.start, times.end)
            cursors.append(_Cursor(stream, data, begun.get(stream.name, first), stop))
        found = list(_merged(cursors, pattern, times, most, size))
        rest = {c.stream.name: c.at for c in cursors}
        done = all(c.at >= c.stop for c in cursors)
    return found, None if done else _token(rest)


def _merged(
    cursors: Sequence[_Cursor], pattern: Pattern, times: Times, most: int, size: int
) -> Iterator[tuple[Stream, Event]]:
    """Matches of all streams, until enough are found or enough is looked through."""
    needles, left = pattern.needles, COST
    heap: list[tuple[int, int]] = []
    for i, cursor in enumerate(cursors):
        left = cursor.advance(pattern, needles, times, left)
        if cursor.found:
            heapq.heappush(heap, (cursor.found.timestamp, i))
        elif cursor.at < cursor.stop:
            return  # what comes first is not known yet
    while heap and most > 0 and size > 0:
        _, i = heapq.heappop(heap)
        cursor = cursors[i]
        assert cursor.found is not None
        yield cursor.stream, cursor.found
        most, size = most - 1, size - len(cursor.found.message)
        left = cursor.advance(pattern, needles, times, left)
        if cursor.found:
            heapq.heappush(heap, (cursor.found.timestamp, i))
        elif cursor.at < cursor.stop:
            return


def _find(data: mmap.mmap, needle: bytes, start: int, stop: int) -> int:
    """Offset of the needle; ``stop`` where it is not. What has been passed leaves the memory."""
    while start < stop:
        end = min(stop, start + WINDOW)
        if (where := data.find(needle, start, end)) >= 0:
            return where
        page = start - start % mmap.ALLOCATIONGRANULARITY
        data.madvise(mmap.MADV_DONTNEED, page, end - page)
        start = end if end == stop else end - len(needle) + 1
    return stop


def _token(rest: Mapping[str, int]) -> str:
    return base64.urlsafe_b64encode(json.dumps(rest).encode()).decode()


def _begun(token: str | None) -> dict[str, int]:
    if not token:
        return {}
    try:
        found = json.loads(base64.urlsafe_b64decode(token))
        return {str(name): int(at) for name, at in found.items()}
    except (ValueError, AttributeError, TypeError):
        message = f"The specified nextToken {token!r} is invalid."
        raise ApiError("InvalidParameterException", message) from None
