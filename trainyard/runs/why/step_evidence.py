"""What a failed step left behind: what the service says of it, and what its machines logged."""

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field

_COMPOSE = re.compile(r"^\S*algo-\d+\S* +\| ?")
"""What docker compose writes before a line, in the SDK's local mode."""

_REASON = re.compile(r"^(?:Algorithm|Client|Capacity|InternalServer)Error\b|^ResourceLimitExceeded")
"""How a FailureReason begins."""

_WRITTEN = re.compile(r"Failed(?:\.|:| with)? ?[Rr]eason:\s*(?P<reason>\S.*)", re.DOTALL)
"""What the SDK writes before a FailureReason."""

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_RANK = re.compile(
    r"^\s*(?:\S+:\d+:\d+ )?"  # NCCL's host:pid:thread
    r"\[(?:(?:default|rank|Rank |RANK )?(?P<rank>\d+)|1,(?P<mpi>\d+)(?:<std\w+>)?)\]\s?:?"
    r"|^(?:[\w.,:/+\[\]-]{1,60}\s+){1,3}"  # a time, a stream's name
    r"\[(?:default|rank|Rank |RANK )(?P<later>\d+)\]\s?:?"
)
_STORED = re.compile(r"\[(?:PG [^\]]*?)?Rank (?P<rank>\d+)\]")
_MINOR = re.compile(
    r"^.{0,80}?(?:\b(?:DEBUG|INFO|WARNING|[A-Z]\w*Warning)\b|: [IW] \w|\[[IW]\d{0,4} )"
)
_AGAIN = re.compile(r"(?i)\bretrying\b|\bwill (?:retry|try again)\b|\b(?:entering|in) retry\b")
_ERROR = re.compile(
    r"^.{0,80}?\b(?:(?:ERROR|FATAL|CRITICAL|SEVERE)\b|(?:[Ff]atal|[Ee]rror)\b(?= ?[\]:|)]))"
    r"[\]:|) -]+(?P<what>\w.{9,})"
)

LONGEST = 2000
"""Characters of a line that are looked at: some programs print megabytes without an end."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a machine's log."""

    host: str
    """``algo-1``; empty for what the service itself says."""

    at: int
    """Milliseconds since 1970; 0 where nobody knows."""

    text: str
    """Without a terminal's colours, and cut at ``LONGEST``."""

    event: str = ""
    """Id of the log's event that it is of; empty where it is of none."""

    @property
    def rank(self) -> int | None:
        """The rank that printed it, where a launcher or torch wrote that before the line."""
        if found := _RANK.match(self.text):
            return int(found["rank"] or found["mpi"] or found["later"])
        found = _STORED.search(self.text)
        return int(found["rank"]) if found else None

    @property
    def is_said(self) -> bool:
        """Whether it is the service's own word, and no line of a log."""
        return self.at == 0 and not self.host

    @property
    def is_minor(self) -> bool:
        """Whether whoever logged it calls it less than an error."""
        return _MINOR.match(self.text) is not None

    @property
    def is_tried_again(self) -> bool:
        """Whether it says that what failed is tried once more."""
        return _AGAIN.search(self.text) is not None

    @property
    def error(self) -> str:
        """What it says, where it is logged as an error; else empty."""
        found = _ERROR.match(self.text)
        return found["what"].strip() if found else ""

    @property
    def bare(self) -> str:
        """The line without the rank before it."""
        return _RANK.sub("", self.text, count=1) if _RANK.match(self.text) else self.text


def line(host: str, at: int, text: str, event: str = "") -> Line:
    return Line(host, at, _COMPOSE.sub("", _ANSI.sub("", text[:LONGEST])).rstrip(), event)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Of one step."""

    step: str
    reason: str = ""
    """FailureReason of the step, or of its job."""

    status: str = ""
    """The job's SecondaryStatus, or what stands for it."""

    lines: Sequence[Line] = field(default=())
    """Of all its machines, in the order in which they were logged."""

    @property
    def said(self) -> tuple[Line, ...]:
        """What the service says, a line for a line."""
        rows = filter(None, (self.status, *self.reason.splitlines()))
        return tuple(line("", 0, text) for text in rows)


def of_text(text: str) -> Evidence:
    """A log, or a failure reason, that somebody has as text."""
    if written := _WRITTEN.search(text):
        text = written["reason"]
    rows = textwrap.dedent(text).splitlines()
    if rows and _REASON.match(rows[0]):
        return Evidence(step="", reason="\n".join(rows))
    found = (line("", number, row) for number, row in enumerate(rows, 1) if row.strip())
    return Evidence(step="", lines=tuple(found))
