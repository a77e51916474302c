"""One step of a run, as the comparison sees it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from trainyard.language.steps import Step as Declared
from trainyard.runs.comparing.differences import Value
from trainyard.runs.comparing.places import Places
from trainyard.runs.execution import Step

Group = dict[str, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One step of a run."""

    declared: Declared
    step: Step | None
    """As the execution lists it; None before it begins."""
    job: Mapping[str, Any]
    """Describe's answer for its job; empty without one."""
    places: Places
    group: Group
    """What it was given, and what came of it."""

    @property
    def kind(self) -> Value:
        """Its type."""
        return Value(self.declared.type, self.declared.type)

    @property
    def read(self) -> datetime | None:
        """From when on what is written to its inputs is not what it read; of a cached one that was
        in the run whose result it took."""
        began: datetime | None = self.job.get("CreationTime")
        return began or (self.step.started if self.step else None)


def number(value: Any) -> float | None:
    """``value`` as a number, where it is one or reads like one."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None
