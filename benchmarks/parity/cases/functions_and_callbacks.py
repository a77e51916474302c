"""Lambda steps, callback steps, and the events of an execution."""

from typing import Any

from benchmarks.parity.case_table import case
from benchmarks.parity.execution_events import listen, note_events
from benchmarks.parity.recording import Run
from benchmarks.parity.small_steps import (
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
    run.call("sagemaker.stop_pipeline_execution", PipelineExecutionArn=arn)
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
    steps = [invoke(make_function(run, "f"), "Ask", "x"), fail("Stop", "on purpose")]
    run.create("tells", definition([steps[0], steps[1] | {"DependsOn": ["Ask"]}]))
    queue = listen(run, "tells")
    run.executed("tells")
    note_events(run, queue)
