"""What a failed step left behind: what the service says of it, and what its machines logged."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

_COMPOSE = re.compile(r"^\S*algo-\d+\S* +\| ?")
"""What docker compose writes before a line, in the SDK's local mode."""

_REASON = re.compile(r"^(?:Algorithm|Client|Capacity|InternalServer)Error\b|^ResourceLimitExceeded")
"""How a FailureReason begins."""

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_RANK = re.compile(
    r"^\s*(?:\S+:\d+:\d+ )?"  # NCCL's host:pid:thread
    r"\[(?:(?:default|rank|Rank |RANK )?(?P<rank>\d+)|1,(?P<mpi>\d+)(?:<std\w+>)?)\]\s?:?"
)
_STORED = re.compile(r"\[(?:PG [^\]]*?)?Rank (?P<rank>\d+)\]")
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

    @property
    def rank(self) -> int | None:
        """The rank that printed it, where a launcher or torch wrote that before the line."""
        found = _RANK.match(self.text)
        if found:
            return int(found["rank"] or found["mpi"])
        found = _STORED.search(self.text)
        return int(found["rank"]) if found else None

    @property
    def bare(self) -> str:
        """The line without the rank before it."""
        return _RANK.sub("", self.text, count=1) if _RANK.match(self.text) else self.text


def line(host: str, at: int, text: str) -> Line:
    return Line(host, at, _COMPOSE.sub("", _ANSI.sub("", text[:LONGEST])).rstrip())


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
    rows = text.splitlines()
    found = tuple(line("", number, row) for number, row in enumerate(rows, 1) if row.strip())
    is_reason = rows and _REASON.match(rows[0])
    return Evidence(step="", reason=text if is_reason else "", lines=() if is_reason else found)
