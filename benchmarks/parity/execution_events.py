"""The events of a pipeline's executions: a rule sends them to a queue, and they are recorded."""

import json
from typing import Any

from benchmarks.parity.recording import Run
from benchmarks.parity.small_steps import make_queue, messages
from trainyard.language.definition_document import END_STATUSES

SETTLED = 12
"""Polls (a minute on AWS) until a new rule holds, and until the last event has come."""


def listen(run: Run, pipeline: str) -> str:
    """Send the pipeline's events to a new queue, and return its URL."""
    queue, name = make_queue(run, "events"), run.name("events")
    arn = run.arn("sqs", name)
    pattern = {
        "source": ["aws.sagemaker"],
        "detail": {"pipelineArn": [run.arn("sagemaker", f"pipeline/{run.name(pipeline)}")]},
    }
    allowed = {"Effect": "Allow", "Principal": {"Service": "events.amazonaws.com"}}
    statement = allowed | {"Action": "sqs:SendMessage", "Resource": arn}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    run.quietly("sqs.set_queue_attributes", QueueUrl=queue, Attributes={"Policy": policy})
    run.quietly("events.put_rule", Name=name, EventPattern=json.dumps(pattern))
    run.later("events.delete_rule", Name=name)
    run.quietly("events.put_targets", Rule=name, Targets=[{"Id": "q", "Arn": arn}])
    run.later("events.remove_targets", Rule=name, Ids=["q"])
    run.pause(SETTLED * run.place.poll)
    return queue


def note_events(run: Run, queue: str) -> None:
    """Record the events of an execution that has ended.

    They come in any order, and maybe twice: they are recorded once, by kind, step and status.
    """
    found: dict[str, Any] = {}

    def ended() -> bool | None:
        found.update({event["id"]: event for event in messages(run, queue, 1)})
        states = [e["detail"].get("currentPipelineExecutionStatus") for e in found.values()]
        return any(state in END_STATUSES for state in states) or None

    run.until(ended, "the execution's last event")
    run.pause(SETTLED * run.place.poll)
    ended()
    listed = sorted(found.values(), key=_order)
    shown = [{"Body": {key: each[key] for key in each if key != "id"}} for each in listed]
    run.note("sqs.receive_message", {"QueueUrl": queue}, {"Messages": shown})


def _order(event: dict[str, Any]) -> tuple[str, ...]:
    detail = event["detail"]
    status = detail.get("currentStepStatus") or detail.get("currentPipelineExecutionStatus", "")
    return event["detail-type"], detail.get("stepName", ""), status
