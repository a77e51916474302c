"""Events of executions, steps, jobs and packages, delivered by rules; schedules that fire."""

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.trainyard.emulator.harness import (
    ROLE,
    Cloud,
    cloud,
    compare,
    condition_step,
    fail_step,
    until,
)
from tests.trainyard.emulator.standin import make_client
from trainyard.emulator.events.event_rules import render_target_input
from trainyard.permissions.role_template import parse_template

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


def failing() -> list[dict]:
    """Return steps without jobs."""
    return [condition_step("Check", [compare("Equals", 1, 1)], [fail_step("Stop", "no")], [])]


def schedule(scheduler: Any, name: str, expression: str, arn: str, **more: Any) -> None:
    later = {"StartDate": time.time() + 3600} if expression.startswith("rate") else {}
    scheduler.create_schedule(
        Name=name,
        **later,  # without it a rate fires at once
        ScheduleExpression=expression,
        FlexibleTimeWindow={"Mode": "OFF"},
        Target={"Arn": arn, "RoleArn": ROLE, **more},
    )


def in_seconds(seconds: float) -> str:
    return time.strftime("at(%Y-%m-%dT%H:%M:%S)", time.gmtime(time.time() + seconds))


def count_executions(aws: Cloud, name: str) -> int:
    """Return how many executions the pipeline has."""
    return len(aws.sm.list_pipeline_executions(PipelineName=name)["PipelineExecutionSummaries"])


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
    aws.wait_for_execution(arn)
    events = bus.bodies("steps", 6)
    details = [event["detail"] for event in events]
    names = [detail.get("stepName", "") for detail in details]
    assert names == ["", "Check", "Check", "Stop", "Stop", ""]
    of_steps = [detail["currentStepStatus"] for detail in details[1:5]]
    assert of_steps == ["Executing", "Succeeded", "Executing", "Failed"]
    of_execution = [details[end]["currentPipelineExecutionStatus"] for end in (0, -1)]
    assert of_execution == ["Executing", "Failed"]
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
    ended = parse_template(path.read_text(), path.name)["Resources"]["RunEnded"]["Properties"]
    text = json.dumps(ended["EventPattern"])
    text = re.sub(r'\{"Fn::Sub": ("[^"]*")\}', r"\1", text)
    names = {"AWS::Partition": "aws", "AWS::Region": "us-east-1", "AWS::AccountId": "123456789012"}
    for name, value in (names | {"PipelineName": "ours"}).items():
        text = text.replace(f"${{{name}}}", value)
    transformer = ended["Targets"][0]["InputTransformer"]
    bus.rule("ours", json.loads(text), {"InputTransformer": transformer})
    aws.create("ours", failing())
    arn = aws.start("ours")
    aws.wait_for_execution(arn)
    aws.create("others", failing())
    aws.wait_for_execution(aws.start("others"))  # no rule of ours
    [said] = bus.bodies("ours", 1)
    assert said.startswith("Failed at 20") and f": {arn}. See python -m pipelines.watch" in said


def test_events_of_ones_own_and_patterns(bus: Bus) -> None:
    bus.rule("mine", {"source": ["me"], "detail": {"size": [{"numeric": [">", 3]}]}})
    entries = [
        {"Source": "me", "DetailType": "t", "Detail": json.dumps({"size": size})} for size in (1, 5)
    ]
    own = {"Source": "aws.sagemaker", "DetailType": "t", "Detail": "{}"}
    answer = bus.events.put_events(Entries=[*entries, own])
    assert answer["FailedEntryCount"] == 1
    [event] = bus.bodies("mine", 1)
    assert event["detail"] == {"size": 5}
    with pytest.raises(ClientError, match="less than or equal to 10"):
        bus.events.put_events(Entries=[entries[0]] * 11)


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
    "target", ["states:HERE:stateMachine:x", "batch:HERE:job-queue/x", "sagemaker:HERE:endpoint/x",
               "logs:HERE:log-group:/aws/events/x"],
)  # fmt: skip
def test_a_target_that_nothing_is_delivered_to_is_refused(bus: Bus, target: str) -> None:
    arn = f"arn:aws:{target.replace('HERE', 'us-east-1:123456789012')}"
    bus.events.put_rule(Name="refused", EventPattern='{"source": ["x"]}')
    with pytest.raises(ClientError, match="is not supported by this emulator"):
        bus.events.put_targets(Rule="refused", Targets=[{"Id": "1", "Arn": arn}])
    with pytest.raises(ClientError, match="is not supported by this emulator"):
        schedule(bus.scheduler, "refused", "rate(1 day)", arn)


@pytest.mark.parametrize(
    ("operation", "asked", "said"),
    [
        ("put_rule", {"Name": "x", "EventPattern": '{"source": [{"like": "x"}]}'},
         "Unrecognized match type like"),
        ("put_rule", {"Name": "x", "EventPattern": '{"size": [{"numeric": ["about", 3]}]}'},
         "Bad numeric range operator: about"),
        ("create_archive", {"ArchiveName": "a", "EventSourceArn": ROLE},
         "does not implement CreateArchive"),
        ("tag_resource", {"ResourceARN": "arn:aws:events:rule/x", "Tags": []},
         "does not implement TagResource"),
    ],
)  # fmt: skip
def test_what_is_no_rule_or_not_done_is_refused(bus: Bus, operation, asked, said) -> None:
    with pytest.raises(ClientError, match=said):
        getattr(bus.events, operation)(**asked)


def test_a_rate_without_a_start_fires_at_once_and_then_by_its_rate(aws: Cloud, bus: Bus) -> None:
    now = time.time()
    off = {"FlexibleTimeWindow": {"Mode": "OFF"}}
    starts = {"at-once": {}, "now": {"StartDate": now}, "later": {"StartDate": now + 3600}}
    for name, more in starts.items():
        target = {"Arn": aws.create(name, failing()), "RoleArn": ROLE}
        bus.scheduler.create_schedule(
            Name=name, ScheduleExpression="rate(1 hour)", Target=target, **off, **more
        )
    for name in ("at-once", "now"):
        assert until(lambda n=name: count_executions(aws, n)) == 1
    bus.scheduler.update_schedule(
        Name="at-once", ScheduleExpression="rate(2 hours)", Target=target, **off
    )
    time.sleep(1.5)
    assert (count_executions(aws, "later"), count_executions(aws, "at-once")) == (0, 1)


def test_a_schedule_starts_a_pipeline_with_its_parameters(aws: Cloud, bus: Bus) -> None:
    arn = aws.create("timed", failing(), Parameters=[{"Name": "P", "Type": "String"}])
    given = {"PipelineParameterList": [{"Name": "P", "Value": "by the clock"}]}
    schedule(bus.scheduler, "soon", in_seconds(2), arn, SageMakerPipelineParameters=given)
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


TRANSFORMER = {
    "InputPathsMap": {"n": "$.detail.n", "s": "$.detail.s"},
    "InputTemplate": '{"n": <n>, "s": <s>, "t": "<s>-<n>"}',
}


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ({"Input": '{"a": 1}'}, '{"a": 1}'),
        ({"InputPath": "$.detail"}, '{"n": 1, "s": "x"}'),
        ({"InputTransformer": TRANSFORMER}, '{"n": 1, "s": "x", "t": "x-1"}'),
    ],
)
def test_what_a_target_gets(target: dict, expected: str) -> None:
    event = {"detail": {"n": 1, "s": "x"}, "time": "2026-11-22T10:00:00Z"}
    assert render_target_input(target, event) == expected


def test_rules_and_schedules_outlive_the_emulator(tmp_path: Path) -> None:
    with cloud(tmp_path) as aws:
        events, scheduler = (make_client(aws.endpoint, n) for n in ("events", "scheduler"))
        arns = {name: aws.create(name, failing()) for name in ("hourly", "once", "nightly")}
        schedule(scheduler, "hourly", "rate(1 hour)", arns["hourly"])
        schedule(scheduler, "once", in_seconds(600), arns["once"])
        events.put_rule(Name="nightly", ScheduleExpression="cron(0 3 * * ? *)")
        events.put_targets(Rule="nightly", Targets=[{"Id": "1", "Arn": arns["nightly"]}])
    kept = {path.name: path for path in (tmp_path / "events").rglob("*.json")}
    for name, due in (("default%2Fhourly", 2), ("default%2Fonce", -600), ("nightly", 2)):
        path = kept[f"{name}.json"]  # as if the time had passed; the one of once has, meanwhile
        document = json.loads(path.read_text()) | {"next": time.time() + due}
        path.write_text(json.dumps(document))
    (tmp_path / "events/rules/torn.json").write_text("{")
    with cloud(tmp_path) as aws:
        events, scheduler = (make_client(aws.endpoint, n) for n in ("events", "scheduler"))
        for name in ("once", "hourly", "nightly"):
            assert until(lambda name=name: count_executions(aws, name)) == 1
        [rule] = events.list_rules()["Rules"]
        assert (rule["Name"], rule["ScheduleExpression"]) == ("nightly", "cron(0 3 * * ? *)")
        assert (tmp_path / "damaged/events/rules/torn.json").exists()
        scheduler.delete_schedule(Name="hourly")
        assert [s["Name"] for s in scheduler.list_schedules()["Schedules"]] == ["once"]
