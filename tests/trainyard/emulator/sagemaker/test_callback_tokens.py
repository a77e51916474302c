"""Callback steps: they notify the queue, and wait for the call with their token."""

import json

import pytest
from botocore.exceptions import ClientError

from tests.trainyard.emulator.harness import Cloud, compare, condition_step, taken_for_aws, until
from tests.trainyard.emulator.sagemaker.builders import run, wait_for_steps
from tests.trainyard.emulator.standin import make_client
from trainyard.commands.callback import main
from trainyard.common.errors import ServiceError
from trainyard.runs.execution import Execution
from trainyard.runs.run_display import format_status

pytestmark = pytest.mark.long

OUTPUTS = [
    {"OutputName": "who", "OutputType": "String"},
    {"OutputName": "share", "OutputType": "Float"},
]


@pytest.fixture(scope="module", autouse=True)
def asking(aws: Cloud) -> None:
    aws.sqs = make_client(aws.endpoint, "sqs")
    aws.queue = aws.sqs.create_queue(QueueName="approvals")["QueueUrl"]
    share = {"Get": "Steps.Ask.OutputParameters['share']"}
    check = condition_step("Check", [compare("LessThan", share, 0.5)], [], [])
    aws.create("asks", [callback_step("Ask", aws.queue), check])


def callback_step(name: str, queue: str) -> dict:
    return {
        "Name": name,
        "Type": "Callback",
        "SqsQueueUrl": queue,
        "Arguments": {"run": {"Get": "Execution.PipelineExecutionId"}, "number": 3},
        "OutputParameters": OUTPUTS,
    }


def message(aws: Cloud) -> dict:
    """Return the queue's next message by a long poll, during which the emulator serves others."""
    found = aws.sqs.receive_message(QueueUrl=aws.queue, WaitTimeSeconds=20)["Messages"][0]
    aws.sqs.delete_message(QueueUrl=aws.queue, ReceiptHandle=found["ReceiptHandle"])
    return json.loads(found["Body"])


def make_output_parameters(**values: str) -> list[dict]:
    return [{"Name": name, "Value": value} for name, value in values.items()]


def test_the_queue_hears_of_it_and_a_success_goes_on(aws: Cloud) -> None:
    arn = aws.start("asks")
    sent = message(aws)
    assert sent["pipelineExecutionArn"] == arn and sent["status"] == "Executing"
    assert sent["arguments"] == {"run": arn.rpartition("/")[2], "number": 3}
    assert len(sent["token"]) == 10 and sent["token"].isalnum()
    assert aws.steps(arn)["Ask"]["StepStatus"] == "Executing"

    request = {"CallbackToken": sent["token"], "ClientRequestToken": "c" * 32}
    send = aws.sm.send_pipeline_execution_step_success
    with pytest.raises(ClientError, match=r"Validation.*not given: \['share'\]"):
        send(**request, OutputParameters=make_output_parameters(who="me"))
    answer = send(**request, OutputParameters=make_output_parameters(who="me", share="0.25"))
    assert answer["PipelineExecutionArn"] == arn
    assert aws.steps(arn)["Ask"]["StepStatus"] == "Succeeded", "acknowledged, so it is recorded"
    assert send(**request, OutputParameters=make_output_parameters(who="me", share="0.25")), (
        "the same call again"
    )
    with pytest.raises(ClientError, match="Validation.*was answered already"):
        aws.sm.send_pipeline_execution_step_failure(CallbackToken=sent["token"])

    steps = wait_for_steps(aws, arn)
    assert steps["Ask"]["Metadata"]["Callback"] == {
        "CallbackToken": sent["token"],
        "SqsQueueUrl": aws.queue,
        "OutputParameters": make_output_parameters(who="me", share="0.25"),
    }
    assert steps["Check"]["Metadata"]["Condition"]["Outcome"] == "True"


def test_a_stop_asks_the_queue_and_waits_for_the_answer(aws: Cloud) -> None:
    arn = aws.start("asks")
    token = message(aws)["token"]
    aws.sm.stop_pipeline_execution(PipelineExecutionArn=arn, ClientRequestToken="s" * 32)
    sent = message(aws)
    assert (sent["token"], sent["status"]) == (token, "Stopping")
    describe = aws.sm.describe_pipeline_execution(PipelineExecutionArn=arn)
    assert describe["PipelineExecutionStatus"] == "Stopping"
    aws.sm.send_pipeline_execution_step_failure(CallbackToken=token, FailureReason="no")
    assert aws.wait_for_execution(arn)["PipelineExecutionStatus"] == "Stopped"


def test_an_unknown_queue_fails_the_step(aws: Cloud) -> None:
    answer, steps = run(aws, "nowhere", [callback_step("Ask", aws.queue + "-none")])
    assert answer["PipelineExecutionStatus"] == "Failed"
    assert steps["Ask"]["FailureReason"].startswith("ClientError: Failed to send to")


def test_a_person_answers_on_the_command_line(aws: Cloud, capsys: pytest.CaptureFixture) -> None:
    with taken_for_aws(aws):
        main(None)
        assert capsys.readouterr().out == "no callback step is waiting\n"
        arns = [aws.start("asks") for _ in range(2)]
        tokens = {sent["pipelineExecutionArn"]: sent["token"] for sent in map(message, [aws] * 2)}
        until(lambda: all("Ask" in aws.steps(arn) for arn in arns))
        table = [format_status(step).plain for step in Execution(arns[0]).list_steps()]
        assert table == [f"Executing (waits: trainyard callback {tokens[arns[0]]})"]
        main(None)
        listed = capsys.readouterr().out
        assert all(f"{tokens[arn]}  Ask since" in listed and arn in listed for arn in arns)
        main(tokens[arns[0]], succeed=True, output=["who=a=b", "share=1"])
        main(tokens[arns[1]], fail="not today")
        assert f"answered; {arns[1]} continues" in capsys.readouterr().out
        with pytest.raises(ServiceError, match="ResourceNotFound.*does not exist"):
            main("0123456789", fail="x")
    assert aws.wait_for_execution(arns[0])["PipelineExecutionStatus"] == "Succeeded"
    assert aws.wait_for_execution(arns[1])["FailureReason"].endswith("Ask: not today")
