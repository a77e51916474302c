"""Read the evidence of a failed step from the service: its reason, and the job's logs.

Apart: ``diagnosis`` takes evidence of any origin, and asks no service.
"""

from collections.abc import Mapping
from typing import Any

from trainyard.runs.execution import Execution, Step, event_id
from trainyard.runs.why.diagnosis import Cause, diagnose
from trainyard.runs.why.failed_conditions import conditions_before
from trainyard.runs.why.logged_exceptions import Evidence, line

LINES = 5_000
"""Largest number of last lines of each machine's log: a first cause is not far from the end."""

TELLING = ("Interrupted", "MaxRuntimeExceeded", "MaxWaitTimeExceeded")
"""Values of SecondaryStatus that are a cause."""


def causes_of(execution: Execution) -> list[Cause]:
    """Return the cause of each failed step, in the order in which they began."""
    return [cause_of(execution, step) for step in execution.steps() if step.status == "Failed"]


def cause_of(execution: Execution, step: Step) -> Cause:
    """Return the cause of the step's failure.

    Raises:
        ServiceError: AWS cannot be reached, or does not let its logs be read.
    """
    if "Fail" in step.metadata and (conditions := conditions_before(execution, step)):
        message = step.reason or "a Fail step without a message"
        return Cause(
            step=step.title,
            name="condition",
            sentence=message,
            certainty="certain",
            lines=conditions,
        )
    job: Mapping[str, Any] = {}
    if step.job and step.job[0] == "TrainingJob":
        job = execution.training_job(step.job[1])
    status = job.get("SecondaryStatus", "")
    lines = [
        line(host, event.get("timestamp", 0), text, event_id(event))
        for host, events in execution.last_events(step, LINES).items()
        for event in events
        for text in event.get("message", "").splitlines()
    ]
    # The sort is stable: lines of one event, which share its time, keep their order.
    lines.sort(key=lambda log_line: log_line.timestamp)
    return diagnose(
        Evidence(
            step=step.title,
            reason=job.get("FailureReason") or step.reason,
            status=status if status in TELLING else "",
            lines=tuple(lines),
        )
    )
