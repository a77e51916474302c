"""One execution, as the list of all of them shows it, in little memory."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from trainyard.language.statuses import ENDED


@dataclass(frozen=True, slots=True)
class Run:
    """An execution of a pipeline. Times are seconds since 1970."""

    pipeline: str
    id: str
    name: str
    """Its display name; its id where it has none."""
    status: str
    started: float
    changed: float
    """When it was last modified: of what has ended, its end."""
    description: str
    reason: str
    """Of its failure."""
    names: tuple[str, ...]
    """Of its parameters."""
    values: tuple[str, ...]
    """Of its parameters, one for each of ``names``."""

    @property
    def key(self) -> str:
        """``pipeline/id``, as the console's addresses name it."""
        return f"{self.pipeline}/{self.id}"

    @property
    def is_ended(self) -> bool:
        """Whether nothing of it runs any more."""
        return self.status in ENDED

    @property
    def began(self) -> datetime:
        """When it was started."""
        return datetime.fromtimestamp(self.started, UTC)

    @property
    def ended(self) -> datetime | None:
        """When it ended; None while it runs."""
        return datetime.fromtimestamp(self.changed, UTC) if self.is_ended else None

    def seconds(self, now: float) -> float:
        """How long it took, or has taken until ``now``."""
        return (self.changed if self.is_ended else now) - self.started

    def parameter(self, name: str) -> str | None:
        """The parameter's value; None where the run has none of that name."""
        return self.values[self.names.index(name)] if name in self.names else None

    def shows_as(self, other: "Run | None") -> bool:
        """Whether a list shows both alike: what runs is modified often, and nobody sees it."""
        if other is None or (self.is_ended and self.changed != other.changed):
            return False
        return all(
            getattr(self, field) == getattr(other, field)
            for field in self.__slots__
            if field != "changed"
        )


def recorded(pipeline: str, found: Mapping[str, Any]) -> Run:
    """A run of Search's PipelineExecution, or of DescribePipelineExecution's answer.

    Any member but the ARN may be absent. Texts that many runs share are kept once.
    """
    id = found["PipelineExecutionArn"].rpartition("/")[2]
    given = found.get("PipelineParameters") or ()
    started = seconds(found.get("CreationTime"))
    return Run(
        pipeline=sys.intern(pipeline),
        id=id,
        name=found.get("PipelineExecutionDisplayName") or id,
        status=sys.intern(found.get("PipelineExecutionStatus") or "Unknown"),
        started=started,
        changed=seconds(found.get("LastModifiedTime")) or started,
        description=sys.intern(found.get("PipelineExecutionDescription") or ""),
        reason=sys.intern(found.get("FailureReason") or ""),
        names=tuple(sys.intern(one["Name"]) for one in given),
        values=tuple(sys.intern(one.get("Value") or "") for one in given),
    )


def seconds(when: datetime | None) -> float:
    """Seconds since 1970; 0 for None."""
    return when.timestamp() if when else 0.0
