"""Lambda steps, callback steps, and the events of an execution."""

import json
from typing import Any

from trainyard.parity.case_table import case
from trainyard.parity.recording import Run
from trainyard.parity.small_steps import (
    condition,
    definition,
    equals,
    fail,
    given,
    invoke,
    joined,
    make_function,
    make_queue,
    messages,
    text,
)

SUCCESS = "sagemaker.send_pipeline_execution_step_success"
FAILURE = "sagemaker.send_pipeline_execution_step_failure"
SETTLED = 60.0
"""Seconds until a new rule of EventBridge holds, and the last event has come, on AWS."""


@case()
def a_functions_outputs_are_read(run: Run) -> None:
    outputs = [{"Get": f"Steps.Ask.OutputParameters['{name}']"} for name in ("text", "number")]
    yes = equals({"Get": "Steps.Ask.OutputParameters['yes']"}, True)
    ask = invoke(make_function(run, "f"), "Ask", {"Get": "Parameters.How"})
    steps = [ask, condition("Check", [yes], [fail("Tell", joined(*outputs))], [])]
    run.create("asks", definition(steps, text("How", "x")))
    for how in ("x", "raise", "lack"):
        run.executed("asks", **given(How=how))


@case()
def a_function_that_does_not_exist(run: Run) -> None:
    function = run.arn("lambda", f"function:{run.name('none')}")
    run.create("asks-none", definition([invoke(function, "Ask", "x")]))
    run.executed("asks-none")


@case()
def a_callback_step_is_answered(run: Run) -> None:
    queue = make_queue(run, "q")
    outputs = [{"OutputName": "text", "OutputType": "String"}]
    asks = {"SqsQueueUrl": queue, "OutputParameters": outputs, "Arguments": {"a": "x", "b": 2}}
    told = {"Get": "Steps.Ask.OutputParameters['text']"}
    steps = [{"Name": "Ask", "Type": "Callback", **asks}, fail("Tell", told)]
    run.create("waits", definition(steps))
    arn, token = _waits(run, queue)
    run.call(SUCCESS, CallbackToken=token)
    output = [{"Name": "text", "Value": "answered"}]
    run.call(SUCCESS, CallbackToken=token, OutputParameters=output)
    run.ended(arn)
    run.call(SUCCESS, CallbackToken=token, OutputParameters=output)
    arn, token = _waits(run, queue)
    run.call(FAILURE, CallbackToken=token, FailureReason="it was refused")
    run.ended(arn)


@case()
def a_waiting_callback_step_is_stopped(run: Run) -> None:
    queue = make_queue(run, "q")
    asks = {"SqsQueueUrl": queue, "OutputParameters": [], "Arguments": {}}
    run.create("waits", definition([{"Name": "Ask", "Type": "Callback", **asks}]))
    arn, token = _waits(run, queue)
    stop = "sagemaker.stop_pipeline_execution"
    run.call(stop, PipelineExecutionArn=arn, ClientRequestToken="s" * 32)
    _note_message(run, queue)
    run.call("sagemaker.describe_pipeline_execution", PipelineExecutionArn=arn)
    run.call("sagemaker.list_pipeline_execution_steps", PipelineExecutionArn=arn)
    run.call(SUCCESS, CallbackToken=token)
    run.ended(arn)


def _waits(run: Run, queue: str) -> tuple[str, str]:
    """Start the pipeline; return the execution's ARN and the token that its message has."""
    arn = run.start("waits")
    token = _note_message(run, queue)["token"]
    run.tokens[arn] = token
    return arn, token


def _note_message(run: Run, queue: str) -> dict[str, Any]:
    found = run.until(lambda: messages(run, queue, 1) or None, "the message")[0]
    run.scrub.hide(found["token"], "<token>")
    run.note("sqs.receive_message", {"QueueUrl": queue}, {"Messages": [{"Body": found}]})
    return found


@case()
def the_events_of_an_execution(run: Run) -> None:
    """They come in any order: they are recorded by their kind, step and status."""
    queue, function = make_queue(run, "q"), make_function(run, "f")
    steps = [invoke(function, "Ask", "x"), fail("Stop", "on purpose") | {"DependsOn": ["Ask"]}]
    run.create("tells", definition(steps))
    _make_rule(run, queue)
    run.pause(SETTLED * run.place.poll / 5)
    run.executed("tells")
    found: dict[str, Any] = {}

    def ended() -> bool | None:
        found.update({event["id"]: event for event in messages(run, queue, 1)})
        states = [e["detail"].get("currentPipelineExecutionStatus") for e in found.values()]
        return "Failed" in states or None

    run.until(ended, "the execution's last event")
    run.pause(SETTLED * run.place.poll / 5)
    ended()
    listed = sorted(found.values(), key=_order)
    shown = [{"Body": {k: v for k, v in e.items() if k != "id"}} for e in listed]
    run.note("sqs.receive_message", {"QueueUrl": queue}, {"Messages": shown})


def _make_rule(run: Run, queue: str) -> None:
    """Send the pipeline's events to the queue."""
    rule, arn = run.name("rule"), run.arn("sqs", run.name("q"))
    pattern = {
        "source": ["aws.sagemaker"],
        "detail": {"pipelineArn": [run.arn("sagemaker", f"pipeline/{run.name('tells')}")]},
    }
    allowed = {"Effect": "Allow", "Principal": {"Service": "events.amazonaws.com"}}
    statement = allowed | {"Action": "sqs:SendMessage", "Resource": arn}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    run.quietly("sqs.set_queue_attributes", QueueUrl=queue, Attributes={"Policy": policy})
    run.quietly("events.put_rule", Name=rule, EventPattern=json.dumps(pattern))
    run.later("events.delete_rule", Name=rule)
    run.quietly("events.put_targets", Rule=rule, Targets=[{"Id": "q", "Arn": arn}])
    run.later("events.remove_targets", Rule=rule, Ids=["q"])


def _order(event: dict[str, Any]) -> tuple[str, ...]:
    detail = event["detail"]
    status = detail.get("currentStepStatus") or detail.get("currentPipelineExecutionStatus", "")
    return event["detail-type"], detail.get("stepName", ""), status
