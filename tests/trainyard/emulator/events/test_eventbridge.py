"""Events of executions, steps, jobs and packages, delivered by rules; schedules that fire."""

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.trainyard.emulator.events.test_restart import failing, in_seconds, schedule
from tests.trainyard.emulator.harness import (
    ROLE,
    Cloud,
    cloud,
    until,
)
from tests.trainyard.emulator.standin import make_client
from trainyard.emulator.events.event_rules import body
from trainyard.permissions.role_template import read

pytestmark = pytest.mark.long

CHECKOUT = Path(__file__).parents[4]
EXECUTION = "SageMaker Model Building Pipeline Execution Status Change"
STEP = "SageMaker Model Building Pipeline Execution Step Status Change"


class Bus:
    """Clients of EventBridge, of its Scheduler and of queues."""

    def __init__(self, aws: Cloud) -> None:
        self.events, self.scheduler, self.sqs = (
            make_client(aws.endpoint, name) for name in ("events", "scheduler", "sqs")
        )

    def queue(self, name: str) -> str:
        """Create a queue; return its ARN."""
        url = self.sqs.create_queue(QueueName=name)["QueueUrl"]
        asked = self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
        return asked["Attributes"]["QueueArn"]

    def rule(self, name: str, pattern: dict, target: dict | None = None) -> str:
        """Create a rule that delivers to a queue of its name."""
        self.events.put_rule(Name=name, EventPattern=json.dumps(pattern))
        one = {"Id": "1", "Arn": self.queue(name), **(target or {})}
        self.events.put_targets(Rule=name, Targets=[one])
        return name

    def bodies(self, name: str, count: int) -> list[Any]:
        """Return ``count`` messages of the queue, as JSON, in order."""
        url, found = self.sqs.get_queue_url(QueueName=name)["QueueUrl"], []

        def enough() -> bool:
            answer = self.sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)
            for message in answer.get("Messages", []):
                found.append(json.loads(message["Body"]))
                self.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
            return len(found) >= count

        until(enough)
        return found


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory):
    with cloud(tmp_path_factory.mktemp("aws")) as running:
        yield running


@pytest.fixture(scope="module")
def bus(aws: Cloud) -> Bus:
    return Bus(aws)


def test_an_execution_and_its_steps_say_each_status(aws: Cloud, bus: Bus) -> None:
    bus.rule("steps", {"source": ["aws.sagemaker"], "detail-type": [EXECUTION, STEP]})
    aws.create("told", failing())
    arn = aws.start("told", PipelineExecutionDisplayName="once")
    aws.ended(arn)
    events = bus.bodies("steps", 6)
    statuses = [
        (
            event["detail"].get("stepName", ""),
            event["detail"].get("currentStepStatus")
            or event["detail"]["currentPipelineExecutionStatus"],
        )
        for event in events
    ]
    assert statuses == [
        ("", "Executing"),
        ("Check", "Executing"),
        ("Check", "Succeeded"),
        ("Stop", "Executing"),
        ("Stop", "Failed"),
        ("", "Failed"),
    ]
    last, stop = events[-1], events[-2]["detail"]
    assert last["resources"] == [arn.partition("/execution/")[0], arn]
    assert last["detail"]["previousPipelineExecutionStatus"] == "Executing"
    assert last["detail"]["pipelineExecutionDisplayName"] == "once"
    assert last["detail"]["executionEndTime"].endswith("Z")
    assert (stop["stepType"], stop["previousStepStatus"]) == ("Fail", "Executing")
    assert stop["failureReason"] == "no"
    assert stop["metadata"] == {"fail": {"errorMessage": "no"}}
    assert "StepType" not in aws.steps(arn)["Stop"]  # the API has no such member


def test_a_package_and_its_approval(aws: Cloud, bus: Bus) -> None:
    pattern = {"detail-type": ["SageMaker Model Package State Change"]}
    bus.rule("packages", pattern, {"InputPath": "$.detail.ModelApprovalStatus"})
    aws.sm.create_model_package_group(ModelPackageGroupName="models")
    made = aws.sm.create_model_package(ModelPackageGroupName="models")["ModelPackageArn"]
    aws.sm.update_model_package(ModelPackageArn=made, ModelApprovalStatus="Approved")
    assert bus.bodies("packages", 2) == ["PendingManualApproval", "Approved"]


def test_a_processing_job_has_its_own_events(aws: Cloud, bus: Bus) -> None:
    bus.rule("jobs", {"detail-type": [{"prefix": "SageMaker Processing Job"}]})
    aws.process("noted", "true")
    begun, ended = bus.bodies("jobs", 2)
    assert begun["detail"]["ProcessingJobStatus"] == "InProgress"
    assert ended["detail"]["ProcessingJobStatus"] == "Completed"
    assert ended["resources"] == [ended["detail"]["ProcessingJobArn"]]
    assert ended["detail"]["ProcessingEndTime"] > 10**12  # milliseconds


def test_the_rule_of_our_own_template_tells_of_an_ended_run(aws: Cloud, bus: Bus) -> None:
    path = CHECKOUT / "infra/events.yaml"
    ended = read(path.read_text(), path.name)["Resources"]["RunEnded"]["Properties"]
    text = json.dumps(ended["EventPattern"])
    text = re.sub(r'\{"Fn::Sub": ("[^"]*")\}', r"\1", text)
    names = {"AWS::Partition": "aws", "AWS::Region": "us-east-1", "AWS::AccountId": "123456789012"}
    for name, value in (names | {"PipelineName": "ours"}).items():
        text = text.replace(f"${{{name}}}", value)
    transformer = ended["Targets"][0]["InputTransformer"]
    bus.rule("ours", json.loads(text), {"InputTransformer": transformer})
    aws.create("ours", failing())
    arn = aws.start("ours")
    aws.ended(arn)
    aws.create("others", failing())
    aws.ended(aws.start("others"))  # no rule of ours
    [said] = bus.bodies("ours", 1)
    assert said.startswith("Failed at 20") and f": {arn}. See python -m pipelines.watch" in said


def test_events_of_ones_own_and_patterns(bus: Bus) -> None:
    odd = json.dumps({"detail": {"size": [{"numeric": ["about", 3]}]}})
    with pytest.raises(ClientError, match="Bad numeric range operator: about"):
        bus.events.put_rule(Name="odd", EventPattern=odd)
    bus.rule("mine", {"source": ["me"], "detail": {"size": [{"numeric": [">", 3]}]}})
    entries = [
        {"Source": "me", "DetailType": "t", "Detail": json.dumps({"size": size})} for size in (1, 5)
    ]
    own = {"Source": "aws.sagemaker", "DetailType": "t", "Detail": "{}"}
    answer = bus.events.put_events(Entries=[*entries, own])
    assert answer["FailedEntryCount"] == 1
    [event] = bus.bodies("mine", 1)
    assert event["detail"] == {"size": 5}


def test_a_disabled_rule_is_silent_and_one_with_targets_stays(bus: Bus) -> None:
    bus.rule("off", {"source": ["off"]})
    bus.events.disable_rule(Name="off")
    entry = {"Source": "off", "DetailType": "t", "Detail": "{}"}
    bus.events.put_events(Entries=[entry])
    bus.events.enable_rule(Name="off")
    bus.events.put_events(Entries=[entry | {"Detail": '{"n": 2}'}])
    assert bus.bodies("off", 1)[0]["detail"] == {"n": 2}
    with pytest.raises(ClientError, match="since it has targets"):
        bus.events.delete_rule(Name="off")
    bus.events.remove_targets(Rule="off", Ids=["1"])
    bus.events.delete_rule(Name="off")
    assert "off" not in [rule["Name"] for rule in bus.events.list_rules()["Rules"]]


@pytest.mark.parametrize(
    "arn",
    [
        "arn:aws:states:us-east-1:123456789012:stateMachine:x",
        "arn:aws:batch:us-east-1:123456789012:job-queue/x",
        "arn:aws:sagemaker:us-east-1:123456789012:endpoint/x",
        "arn:aws:logs:us-east-1:123456789012:log-group:/aws/events/x",
    ],
)
def test_a_target_that_nothing_is_delivered_to_is_refused(bus: Bus, arn: str) -> None:
    bus.events.put_rule(Name="refused", EventPattern='{"source": ["x"]}')
    with pytest.raises(ClientError, match="is not delivered to by this emulator"):
        bus.events.put_targets(Rule="refused", Targets=[{"Id": "1", "Arn": arn}])
    with pytest.raises(ClientError, match="is not delivered to by this emulator"):
        schedule(bus.scheduler, "refused", "rate(1 day)", arn)
    with pytest.raises(ClientError, match="Unrecognized match type like"):
        bus.events.put_rule(Name="x", EventPattern=json.dumps({"source": [{"like": "x"}]}))
    with pytest.raises(ClientError, match="does not implement CreateArchive"):
        bus.events.create_archive(ArchiveName="a", EventSourceArn=arn)
    with pytest.raises(ClientError, match="does not implement TagResource"):
        bus.events.tag_resource(ResourceARN="arn:aws:events:rule/x", Tags=[])


def test_a_rate_without_a_start_fires_at_once_and_then_by_its_rate(aws: Cloud, bus: Bus) -> None:
    starts = {"at-once": {}, "now": {"StartDate": time.time()}}
    starts["later"] = {"StartDate": time.time() + 3600}
    for name, more in starts.items():
        target = {"Arn": aws.create(name, failing()), "RoleArn": ROLE}
        bus.scheduler.create_schedule(
            Name=name, ScheduleExpression="rate(1 hour)", FlexibleTimeWindow={"Mode": "OFF"},
            Target=target, **more,
        )  # fmt: skip
    ask = lambda name: aws.sm.list_pipeline_executions(PipelineName=name)  # noqa: E731
    for name in ("at-once", "now"):
        assert len(until(lambda n=name: ask(n)["PipelineExecutionSummaries"])) == 1
    bus.scheduler.update_schedule(
        Name="at-once", ScheduleExpression="rate(2 hours)", FlexibleTimeWindow={"Mode": "OFF"},
        Target={"Arn": target["Arn"], "RoleArn": ROLE},
    )  # fmt: skip
    time.sleep(1.5)
    assert ask("later")["PipelineExecutionSummaries"] == []
    assert len(ask("at-once")["PipelineExecutionSummaries"]) == 1


def test_a_schedule_starts_a_pipeline_with_its_parameters(aws: Cloud, bus: Bus) -> None:
    arn = aws.create("timed", failing(), Parameters=[{"Name": "P", "Type": "String"}])
    given = {"PipelineParameterList": [{"Name": "P", "Value": "by the clock"}]}
    schedule(bus.scheduler, "soon", in_seconds(3), arn, SageMakerPipelineParameters=given)
    found = until(
        lambda: aws.sm.list_pipeline_executions(PipelineName="timed")["PipelineExecutionSummaries"]
    )
    parameters = aws.sm.list_pipeline_parameters_for_execution(
        PipelineExecutionArn=found[0]["PipelineExecutionArn"]
    )
    assert parameters["PipelineParameters"] == [{"Name": "P", "Value": "by the clock"}]
    shown = bus.scheduler.get_schedule(Name="soon")
    assert shown["Target"]["SageMakerPipelineParameters"] == given
    assert shown["ScheduleExpressionTimezone"] == "UTC"


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ({"Input": '{"a": 1}'}, '{"a": 1}'),
        ({"InputPath": "$.detail"}, '{"n": 1, "s": "x"}'),
        (
            {"InputTransformer": {"InputPathsMap": {"n": "$.detail.n", "s": "$.detail.s"},
             "InputTemplate": '{"n": <n>, "s": <s>, "t": "<s>-<n>"}'}},
            '{"n": 1, "s": "x", "t": "x-1"}',
        ),
    ],
)  # fmt: skip
def test_what_a_target_gets(target: dict, expected: str) -> None:
    event = {"detail": {"n": 1, "s": "x"}, "time": "2026-11-22T10:00:00Z"}
    assert body(target, event) == expected


def test_more_than_ten_events_at_a_time_are_refused(bus):
    entry = {"Source": "mine", "DetailType": "done", "Detail": "{}"}
    with pytest.raises(ClientError, match="less than or equal to 10"):
        bus.events.put_events(Entries=[entry] * 11)
