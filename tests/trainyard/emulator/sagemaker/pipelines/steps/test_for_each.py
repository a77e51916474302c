"""ForEach: the body runs once for each item, and the selector picks an iteration."""

import json

import pytest
from botocore.exceptions import ClientError

from tests.trainyard.emulator.harness import Cloud, cloud, fail_step, process_step, until
from tests.trainyard.emulator.test_lambda_ import (
    code_folder,
    lambda_step,
    log_of,
    make,
    zipped,
)
from trainyard.emulator.sagemaker.pruning import References

pytestmark = pytest.mark.long

SOURCE = """
import os, time
def work(event, context):
    print(f"+{event['x']}")
    while "gate" in event and not os.path.exists(f"/opt/ml/{event['gate']}"):
        time.sleep(0.02)
    print(f"-{event['x']}")
    if os.path.exists("/opt/ml/fail") and event["x"] == 3:
        raise ValueError("three")
    return {"y": event["x"] * (event["x"] - 4), "x": event["x"]}
"""
ITEM = {"Get": "ForEach.CurrentItem"}


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory):
    with cloud(tmp_path_factory.mktemp("aws") / "state") as running:
        make(running, "work", Code={"ZipFile": zipped(SOURCE)}, Timeout=300)
        yield running


def work(name: str, x: object, **more) -> dict:
    return lambda_step(name, "work", {"x": x, **more}, y="Float", x="Integer")


def marks(aws: Cloud) -> list[str]:
    """Return what began (``+1``) and ended (``-1``), in its order."""
    groups = aws.logs.describe_log_groups(logGroupNamePrefix="/aws/lambda/work")["logGroups"]
    return [line for line in log_of(aws, "work") if line[0] in "+-"] if groups else []


def loop(items: object, body: list[dict], most: int = 10, **selector) -> dict:
    arguments = {"IterableItems": items, "MaxConcurrency": most, "ForEachBody": body}
    if selector:
        arguments["Selector"] = selector
    return {"Name": "Loop", "Type": "ForEach", "Arguments": arguments}


def run(aws: Cloud, name: str, steps: list[dict], **more) -> tuple[dict, dict]:
    aws.create(name, steps, **more)
    return aws.run(name)


def test_each_item_runs_the_body_and_the_best_is_selected(aws: Cloud) -> None:
    first = {"Get": "Steps.First.OutputParameters['x']"}
    items = {"Name": "Items", "Type": "String", "DefaultValue": '[{"v": 1}, {"v": 2}, {"v": 3}]'}
    body = [
        work("First", {"Get": "ForEach.CurrentItem.v"}),
        work("Second", first, of=ITEM, outer={"Get": "Steps.Before.OutputParameters['y']"}),
    ]
    field = {"Get": "IterationOutput.Second.OutputParameters['y']"}
    after = work(
        "After",
        {"Get": "Steps.Loop.Selected.OutputParameters['x']"},
        third={"Get": "Steps.Loop.IterationOutputs[2].First.OutputParameters['x']"},
        count={"Get": "Steps.Loop.SucceededStepCount"},
    )
    each = loop({"Get": "Parameters.Items"}, body, Pick="MinBy", Field=field)
    answer, steps = run(aws, "sweep", [after, each, work("Before", 7)], Parameters=[items])
    assert answer["PipelineExecutionStatus"] == "Succeeded", (answer, steps)
    assert steps["Loop"]["Metadata"]["ForEach"] == {
        "Status": "Succeeded",
        "InputItemCount": 3,
        "TotalStepCount": 6,
        "SucceededStepCount": 6,
        "FailedStepCount": 0,
        "StoppedStepCount": 0,
        "Selector": {"StepName": "Second", "Index": 1},
    }
    assert steps["First-2"]["IterationContext"] == {
        "ParentStepName": "Loop",
        "Index": 2,
        "Item": '{"v": 3}',
    }
    assert "IterationContext" not in steps["Before"]
    assert marks(aws)[-2:] == ["+2", "-2"], "After got the second item's x"


def test_no_more_run_at_once_than_it_says(aws: Cloud) -> None:
    before = len(marks(aws))
    aws.create("narrow", [loop([1, 2, 4, 5], [work("Item", ITEM, gate="narrow")], most=2)])
    arn = aws.start("narrow")
    until(lambda: len(marks(aws)) == before + 2)
    (code_folder(aws, "work") / "narrow").touch()
    assert aws.ended(arn)["PipelineExecutionStatus"] == "Succeeded", aws.steps(arn)
    running, most = 0, 0
    for mark in marks(aws)[before:]:
        running += 1 if mark.startswith("+") else -1
        most = max(most, running)
    assert most == 2


def test_a_failed_item_starts_no_others_and_a_retry_keeps_what_succeeded(aws: Cloud) -> None:
    fail = code_folder(aws, "work") / "fail"
    fail.touch()
    body = [work("One", ITEM)]
    answer, steps = run(aws, "fails", [loop([1, 3, 5], body, most=1), work("Beside", 9)])
    assert answer["PipelineExecutionStatus"] == "Failed"
    assert "1 of 3 steps of the loop failed; One-1: " in steps["Loop"]["FailureReason"]
    assert {n: s["StepStatus"] for n, s in steps.items()} == {
        "Loop": "Failed",
        "One-0": "Succeeded",
        "One-1": "Failed",
        "Beside": "Succeeded",
    }
    assert steps["Loop"]["Metadata"]["ForEach"]["Status"] == "Failed"
    fail.unlink()
    before = len(marks(aws))
    arn = answer["PipelineExecutionArn"]
    aws.sm.retry_pipeline_execution(PipelineExecutionArn=arn, ClientRequestToken="r" * 32)
    assert aws.ended(arn)["PipelineExecutionStatus"] == "Succeeded"
    assert marks(aws)[before:] == ["+3", "-3", "+5", "-5"]


def test_a_stop_ends_a_loop(aws: Cloud) -> None:
    before = len(marks(aws))
    aws.create("stopped", [loop([1, 2], [work("Long", ITEM, gate="stopped")], most=1)])
    arn = aws.start("stopped", ParallelismConfiguration={"MaxParallelExecutionSteps": 1})
    until(lambda: len(marks(aws)) > before)
    aws.sm.stop_pipeline_execution(PipelineExecutionArn=arn, ClientRequestToken="s" * 32)
    (code_folder(aws, "work") / "stopped").touch()
    assert aws.ended(arn)["PipelineExecutionStatus"] == "Stopped"
    statuses = {n: s["StepStatus"] for n, s in aws.steps(arn).items()}
    assert statuses == {"Loop": "Stopped", "Long-0": "Succeeded"}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("no json", "is not JSON"),
        ('{"a": 1}', "expected a JSON list"),
        ('[{"w": 1}]', "'CurrentItem.v' has no 'v'"),
        (json.dumps(["x" * 13000]), "item 0: expected at most 12800 characters"),
    ],
)
def test_items_that_are_none_fail_the_step(aws: Cloud, value: str, reason: str) -> None:
    items = {"Name": "Items", "Type": "String", "DefaultValue": value}
    body = [work("First", {"Get": "ForEach.CurrentItem.v"})]
    name = f"bad-{abs(hash(reason)) % 10**8}"
    aws.create(name, [loop({"Get": "Parameters.Items"}, body)], Parameters=[items])
    answer, steps = aws.run(name)
    assert answer["PipelineExecutionStatus"] == "Failed"
    assert reason in steps["Loop"]["FailureReason"]


def test_a_body_is_cached_and_kept_from_pruning_by_its_childs_name(aws: Cloud) -> None:
    body = process_step("Shard", "true", CacheConfig={"Enabled": True, "ExpireAfter": "P1D"})
    aws.create("cached", [loop([1], [body])])
    first, _ = aws.run("cached")
    _, steps = aws.run("cached")
    hit = {"SourcePipelineExecutionArn": first["PipelineExecutionArn"]}
    assert steps["Shard-0"]["CacheHitResult"] == hit
    assert "Shard-0" in [unit.cached_step for unit in References(aws.state).units]


def test_an_empty_list_runs_nothing(aws: Cloud) -> None:
    items = {"Name": "Items", "Type": "String", "DefaultValue": "[]"}
    body = [work("First", ITEM)]
    answer, steps = run(aws, "empty", [loop({"Get": "Parameters.Items"}, body)], Parameters=[items])
    assert answer["PipelineExecutionStatus"] == "Succeeded"
    assert steps["Loop"]["Metadata"]["ForEach"]["TotalStepCount"] == 0


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([loop([1], [fail_step("F", "x")])], "a Fail step cannot stand in a loop's body"),
        ([loop([], [lambda_step("B", "work", {})])], "IterableItems: expected an expression or 1"),
        ([loop([1], [lambda_step("B", "work", {})], most=51)], "MaxConcurrency 51: expected 1 to"),
        (
            [
                loop([1], [lambda_step("B", "work", {}, x="String")]),
                lambda_step("C", "work", {"x": {"Get": "Steps.B.OutputParameters['x']"}}),
            ],
            "step 'B' runs once per item of 'Loop'",
        ),
        (
            [loop([1], [lambda_step("B", "work", {})]), lambda_step("B-0", "work", {})],
            "step name 'B-0': loop 'Loop' has a step of this name",
        ),
        (
            [lambda_step("A", "work", {"x": ITEM})],
            "ForEach.CurrentItem outside",
        ),
    ],
)
def test_what_no_loop_can_be_is_refused(aws: Cloud, steps: list[dict], said: str) -> None:
    with pytest.raises(ClientError, match=f"ValidationException.*({said})"):
        aws.create("refused", steps)
