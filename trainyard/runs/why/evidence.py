"""What a failed step left behind: what the service says of it, and what its machines logged."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from trainyard.runs.why import unpacking

_COMPOSE = re.compile(r"^\S*algo-\d+\S* +\| ?")
"""What docker compose writes before a line, in the SDK's local mode."""

_REASON = re.compile(r"^(?:Algorithm|Client|Capacity|InternalServer)Error\b|^ResourceLimitExceeded")
"""How a FailureReason begins."""

_WRITTEN = re.compile(
    r"(?:Failed(?:\.|:| with)? ?[Rr]eason:|^\W*[Ff]ailure ?[Rr]eason[\"']?\s*[:=])"
    r"\s*(?P<quote>[\"']?)(?P<reason>\S.*)",
    re.DOTALL | re.MULTILINE,
)
"""What the SDK and the console write before a FailureReason."""

_ADJACENT = re.compile(r"(?<=[^:,])(['\"])\s*\n\s*\1")
"""Between two parts of a string that Python's pprint wrote on two lines."""

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
    r"|^\W*(?:\d{1,4}: )?\[NeMo E [^\]]{1,80}\] ?(?P<nemo>\S.{9,})"
    r"|^\W{0,2}[EF]\d{3,4} [\d:.]{8,}\s.{0,80}?\] ?(?P<glog>\S.{9,})"
)
_SUPPOSED = re.compile(
    r"(?i)\bthere are (?:some |several |a few |many )?(?:potential|possible)"
    r"|\b(?:potential|possible|common|likely|probable) (?:root )?(?:causes?|reasons?|fixes)\b"
)
"""Where a message begins to list what may have been the reason, which says nothing of what was."""

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
        found = _RANK.match(self.text)
        if found:
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
        return next(filter(None, found.groups())).strip() if found else ""

    @property
    def stated(self) -> str:
        """The line without a list of what may have been the reason."""
        found = _SUPPOSED.search(self.text)
        return self.text[: found.start()] if found else self.text

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
        rows = filter(None, (self.status, *unpacking.rows(self.reason)))
        return tuple(line("", 0, text) for text in rows)


def of_text(text: str) -> Evidence:
    """A log, or a failure reason, that somebody has as text."""
    text = unpacking.undressed(text)
    if written := _WRITTEN.search(_ADJACENT.sub("", text)):
        text = written["reason"]
        if written["quote"]:
            text = re.split(r"[\"'],?\s*(?:\n|$)", text, maxsplit=1)[0]
    rows = unpacking.rows(text)
    found = tuple(line("", number, row) for number, row in enumerate(rows, 1) if row.strip())
    is_reason = rows and _REASON.match(rows[0])
    return Evidence(
        step="", reason="\n".join(rows) if is_reason else "", lines=() if is_reason else found
    )
