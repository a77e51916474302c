"""What is looked for in a log stream: words or a level, from a time on, for a limited time.

FilterLogEvents does not say how far it has looked. So it is asked for one span of time after
another, each twice as long as the one before while they are answered quickly: what has been looked
through is known, and where to go on is a time, which does not expire.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from trainyard.console.account import Account
from trainyard.console.logs.lines import Line, beginning, end, level
from trainyard.console.logs.streams import Stream
from trainyard.service import service_errors

MOST = 200
"""Lines that are shown at once."""

SECONDS = 2.0
"""A search is that long, about; then it says how far it looked."""

LONGEST = 200
"""Characters that the service looks for; a pattern has 1,024 at most."""

SPANS = 64
"""The first span is such a part of what there is to look through."""

WORDS = {
    "error": ("ERROR", "Error", "error", "Exception", "Traceback", "CRITICAL", "FATAL", "Fatal",
              "fatal", "core dumped", "ut of memory"),
    "warning": ("WARN", "Warn", "warn"),
}  # fmt: skip
"""Level → what a line of it has at least one of."""


@dataclass(frozen=True, slots=True)
class Query:
    """What a line must have."""

    words: str = ""
    """As they stand, or in lower or upper case."""
    level: str = ""
    """``error``: errors; ``warning``: these and warnings."""

    def __bool__(self) -> bool:
        return bool(self.words or self.level)

    @property
    def pattern(self) -> str:
        """In the language of FilterLogEvents: at least what is looked for."""
        if self.words:
            words = self.words[:LONGEST]
            several = dict.fromkeys((words, words.lower(), words.upper(), words.capitalize()))
            if len(words) * len(several) > LONGEST * 3:
                several = {words: None}
        else:
            levels = ("error", "warning") if self.level == "warning" else ("error",)
            several = dict.fromkeys(word for one in levels for word in WORDS[one])
        return " ".join(("?" if len(several) > 1 else "") + _quoted(word) for word in several)

    def has(self, message: str) -> bool:
        """Whether that message is looked for."""
        if self.words.casefold() not in message.casefold():
            return False
        return not self.level or level(message) in ("error", self.level)


@dataclass(frozen=True, slots=True)
class Found:
    """What a search has brought."""

    lines: tuple[Line, ...]
    since: int
    """Looked through from here, milliseconds since the epoch,"""
    until: int
    """to here,"""
    last: int
    """where this is the last line's time."""
    is_all: bool
    """Whether there is nothing after ``until``."""


def search(
    account: Account, stream: Stream, query: Query, since: int = 0, seconds: float = SECONDS
) -> Found:
    """Lines that the query has, in the order of time from ``since`` on.

    Raises:
        ServiceError: CloudWatch refuses.
    """
    first, last = _span(account, stream)
    start, stop, limit = max(first, since), last + 1, time.monotonic() + seconds
    length, found, at = max(1_000, (stop - start) // SPANS), list[Line](), start
    while at < stop and time.monotonic() < limit:
        began = time.monotonic()
        until = min(stop, at + length)
        found += islice(_matches(account, stream, query, at, until), MOST + 1 - len(found))
        if len(found) > MOST:
            kept = tuple(one for one in found if one.at < found[MOST].at) or tuple(found[:MOST])
            return Found(kept, start, kept[-1].at + 1, last, False)
        at = until
        if time.monotonic() - began < seconds / 8:
            length *= 2
    return Found(tuple(found), start, at, last, at >= stop)


def _span(account: Account, stream: Stream) -> tuple[int, int]:
    """Times of the first and of the last line."""
    lines = beginning(account, stream, 1).lines + end(account, stream, 1).lines
    return (lines[0].at, lines[-1].at) if lines else (0, 0)


def _matches(
    account: Account, stream: Stream, query: Query, since: int, until: int
) -> Iterator[Line]:
    token: dict[str, Any] = {}
    while True:
        with service_errors(f"searching log stream {stream.name}"):
            page = account.logs.filter_log_events(
                logGroupName=stream.group,
                logStreamNames=[stream.name],
                startTime=since,
                endTime=until,
                filterPattern=query.pattern,
                **token,
            )
        for event in page.get("events", ()):
            if query.has(event.get("message", "")):
                yield Line.of(event)
        if not page.get("nextToken"):
            return
        token = {"nextToken": page["nextToken"]}


def _quoted(word: str) -> str:
    kept = "".join(c for c in word if c.isprintable())
    return '"' + kept.replace("\\", "\\\\").replace('"', '\\"') + '"'
