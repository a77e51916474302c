"""The step that a page shows, with what several of its parts read."""

from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

from trainyard.common.errors import ServiceError
from trainyard.console.account import A_DAY, Account, Snapshot
from trainyard.console.step.defined import Defined, defined
from trainyard.console.step.made import Made, describe, made_by
from trainyard.language.steps import Step as Declared
from trainyard.runs.execution import Execution, Step
from trainyard.runs.why.diagnosis import Cause
from trainyard.runs.why.reading import cause_of

SETTLED = 60.0
"""Seconds for which what is read of a step that has ended is good: it may be retried."""

LATE = timedelta(minutes=5)
"""After so long a log has all of its lines, and what is found in it stays."""


class Shown:
    """One step of one execution, as it is at this moment.

    Raises:
        ServiceError: there is no such execution, or AWS refused.
    """

    def __init__(self, here: Account, pipeline: str, execution: str, name: str) -> None:
        self.here, self.name = here, name
        self.execution: Execution = here.execution(pipeline, execution)
        self.snapshot: Snapshot = here.snapshot(pipeline, execution)
        self.address = {"pipeline": pipeline, "execution": execution, "step": name}

    @property
    def arn(self) -> str:
        """Of the execution."""
        return self.execution.arn

    @cached_property
    def step(self) -> Step | None:
        """None before it has begun."""
        return next((one for one in self.snapshot.steps if one.name == self.name), None)

    @cached_property
    def defined(self) -> Defined:
        """The definition of the execution."""
        return defined(self.here, self.arn)

    @cached_property
    def declared(self) -> Declared | None:
        """The step in the definition; None where that cannot be read, or has none."""
        try:
            return self.defined.step(self.name)
        except ServiceError:
            return None

    @cached_property
    def made(self) -> Made | None:
        """Its job, or what else it made."""
        return made_by(self.step) if self.step else None

    @cached_property
    def description(self) -> dict[str, Any]:
        """What the service describes of that; empty where there is nothing of the kind."""
        return describe(self.here, self.made, self._seconds) if self.made else {}

    @property
    def type(self) -> str:
        """``Training``; of a step whose definition cannot be read, what its Metadata says."""
        if self.declared:
            return self.declared.type
        return next(iter(self.step.metadata), "") if self.step else ""

    def cause(self) -> Cause | None:
        """Why it failed; None where it has not."""
        one = self.step
        if one is None or one.status != "Failed":
            return None
        key = ("cause", self.arn, one.name, one.ended)
        is_late = one.ended is not None and datetime.now(UTC) - one.ended > LATE
        good = A_DAY if is_late else SETTLED
        return self.here.lately(key, lambda: cause_of(self.execution, one), good)

    def version(self) -> str:
        """Differs from that of another moment when something has changed."""
        running = self.step is not None and self.step.ended is None
        try:
            job = self.description if running else {}
        except ServiceError:  # its part of the page says so
            job = {}
        return repr((self.snapshot.status, self.step, job))

    @property
    def _seconds(self) -> float | None:
        return SETTLED if self.step and self.step.ended else None
