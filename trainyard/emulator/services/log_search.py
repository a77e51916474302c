"""FilterLogEvents: matching events of several streams, in order of time."""

import base64
import contextlib
import heapq
import json
import mmap
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from trainyard.emulator.api import ApiError
from trainyard.emulator.services.log_store import Event, Stream, event_at, map_file


@dataclass(frozen=True, slots=True)
class Pattern:
    """A filter of terms, ``"quoted terms"``, ``-excluded``, ``?optional``; no JSON or field
    patterns.
    """

    every: tuple[str, ...]
    without: tuple[str, ...]
    either: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> "Pattern":
        """Return the pattern of ``text``. Raises ``InvalidParameterException`` for other syntax."""
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
    def needle(self) -> bytes:
        """Bytes that the line of every matching event contains: most other lines need not be
        parsed.
        """
        return json.dumps(max(self.every, key=len, default=""), ensure_ascii=False)[1:-1].encode(
            "utf-8", "replace"
        )


@dataclass(frozen=True, slots=True)
class Times:
    """Times from ``start`` on and before ``end``, in milliseconds; None for no limit."""

    start: int | None
    end: int | None

    @classmethod
    def from_request(cls, request: Mapping) -> "Times":
        return cls(request.get("startTime"), request.get("endTime"))

    def has(self, event: Event) -> bool:
        return (self.start is None or event.timestamp >= self.start) and (
            self.end is None or event.timestamp < self.end
        )


def search(
    streams: Sequence[Stream], pattern: Pattern, request: Mapping, most: int, size: int
) -> tuple[list[tuple[Stream, Event]], str | None]:
    """Return matching events in order of time, and the token to go on; None when all was searched.

    At most ``most`` events and about ``size`` characters of them are returned.
    """
    times, offsets = Times.from_request(request), _read_token(request.get("nextToken"))
    matches: list[tuple[Stream, Event]] = []
    with contextlib.ExitStack() as open_files:
        readers = []
        for stream in streams:
            data = open_files.enter_context(map_file(stream.path))
            first, stop = stream.span(data, times.start, times.end)
            begin = offsets.setdefault(stream.name, first)
            readers.append(_with(stream, _having(data, pattern.needle, begin, stop)))
        for stream, event in heapq.merge(*readers, key=lambda pair: pair[1].timestamp):
            if not (times.has(event) and pattern.matches(event.message)):
                continue
            if len(matches) == most or size <= 0:
                return matches, _token(offsets)
            offsets[stream.name] = event.stop
            matches.append((stream, event))
            size -= len(event.message)
    return matches, None


def _having(data: mmap.mmap, needle: bytes, start: int, stop: int) -> Iterator[Event]:
    """Iterate over the events whose lines contain the needle, in the order of the file."""
    while start < stop and (position := data.find(needle, start, stop)) >= 0:
        event = event_at(data, max(start, data.rfind(b"\n", start, position) + 1))
        yield event
        start = event.stop


def _with(stream: Stream, events: Iterator[Event]) -> Iterator[tuple[Stream, Event]]:
    return ((stream, event) for event in events)


def _token(rest: Mapping[str, int]) -> str:
    return base64.urlsafe_b64encode(json.dumps(rest).encode()).decode()


def _read_token(token: str | None) -> dict[str, int]:
    if not token:
        return {}
    try:
        document = json.loads(base64.urlsafe_b64decode(token))
        return {str(name): int(offset) for name, offset in document.items()}
    except (ValueError, AttributeError, TypeError):
        message = "The specified nextToken is invalid."
        raise ApiError("InvalidParameterException", message) from None
