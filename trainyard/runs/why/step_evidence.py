"""Evidence of a failed step: the service's message, and the logs of its machines."""

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field

_COMPOSE = re.compile(r"^\S*algo-\d+\S* +\| ?")
"""Prefix that docker compose writes before a line, in the SDK's local mode."""

_REASON = re.compile(r"^(?:Algorithm|Client|Capacity|InternalServer)Error\b|^ResourceLimitExceeded")
"""Beginning of a FailureReason."""

_FAILURE_REASON = re.compile(r"Failed(?:\.|:| with)? ?[Rr]eason:\s*(?P<reason>\S.*)", re.DOTALL)
"""Text that the SDK writes before a FailureReason."""

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_RANK = re.compile(
    r"^\s*(?:\S+:\d+:\d+ )?"  # NCCL's host:pid:thread
    r"\[(?:(?:default|rank|Rank |RANK )?(?P<rank>\d+)|1,(?P<mpi>\d+)(?:<std\w+>)?)\]\s?:?"
    r"|^(?:[\w.,:/+\[\]-]{1,60}\s+){1,3}"  # a time, a stream's name
    r"\[(?:default|rank|Rank |RANK )(?P<later>\d+)\]\s?:?"
)
_BRACKET_RANK = re.compile(r"\[(?:PG [^\]]*?)?Rank (?P<rank>\d+)\]")
_MINOR = re.compile(
    r"^.{0,80}?(?:\b(?:DEBUG|INFO|WARNING|[A-Z]\w*Warning)\b|: [IW] \w|\[[IW]\d{0,4} )"
)
_RETRY = re.compile(r"(?i)\bretrying\b|\bwill (?:retry|try again)\b|\b(?:entering|in) retry\b")
_ERROR = re.compile(
    r"^.{0,80}?\b(?:(?:ERROR|FATAL|CRITICAL|SEVERE)\b|(?:[Ff]atal|[Ee]rror)\b(?= ?[\]:|)]))"
    r"[\]:|) -]+(?P<what>\w.{9,})"
)

LONGEST = 2000
"""Characters of a line that are examined: some programs print megabytes without an end."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a machine's log."""

    host: str
    """Machine, such as ``algo-1``; empty for the service's own words."""

    timestamp: int
    """Milliseconds since 1970; 0 if unknown."""

    text: str
    """Text without a terminal's colours, and cut at ``LONGEST``."""

    event: str = ""
    """ID of the log event that has the line; empty if there is none."""

    @property
    def rank(self) -> int | None:
        """Rank that printed it, if a launcher or torch wrote the rank before the line."""
        if match := _RANK.match(self.text):
            return int(match["rank"] or match["mpi"] or match["later"])
        match = _BRACKET_RANK.search(self.text)
        return int(match["rank"]) if match else None

    @property
    def is_said(self) -> bool:
        """True for the service's own words, which are not from a log."""
        return self.timestamp == 0 and not self.host

    @property
    def is_minor(self) -> bool:
        """True if the program logs it as less than an error."""
        return _MINOR.match(self.text) is not None

    @property
    def is_tried_again(self) -> bool:
        """True if it says that the failed action is tried again."""
        return _RETRY.search(self.text) is not None

    @property
    def error(self) -> str:
        """Message, if it is logged as an error; else empty."""
        match = _ERROR.match(self.text)
        return match["what"].strip() if match else ""

    @property
    def bare(self) -> str:
        """Line without the rank before it."""
        return _RANK.sub("", self.text, count=1) if _RANK.match(self.text) else self.text


def line(host: str, timestamp: int, text: str, event: str = "") -> Line:
    return Line(host, timestamp, _COMPOSE.sub("", _ANSI.sub("", text[:LONGEST])).rstrip(), event)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Evidence of one step."""

    step: str
    reason: str = ""
    """FailureReason of the step, or of its job."""

    status: str = ""
    """SecondaryStatus of the job, or its replacement."""

    lines: Sequence[Line] = field(default=())
    """Lines of all its machines, in the order in which they were logged."""

    @property
    def service_lines(self) -> tuple[Line, ...]:
        """The service's words, one entry per line."""
        rows = filter(None, (self.status, *self.reason.splitlines()))
        return tuple(line("", 0, text) for text in rows)


def of_text(text: str) -> Evidence:
    """Return the evidence in a log, or a failure reason, that is given as text."""
    if match := _FAILURE_REASON.search(text):
        text = match["reason"]
    rows = textwrap.dedent(text).splitlines()
    if rows and _REASON.match(rows[0]):
        return Evidence(step="", reason="\n".join(rows))
    lines = (line("", number, row) for number, row in enumerate(rows, 1) if row.strip())
    return Evidence(step="", lines=tuple(lines))
