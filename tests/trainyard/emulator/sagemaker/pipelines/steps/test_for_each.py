"""ForEach: the body runs once for each item, and the selector picks an iteration."""

import json

import pytest
from botocore.exceptions import ClientError

from tests.trainyard.emulator.harness import Cloud, fail_step, process_step, until
from tests.trainyard.emulator.sagemaker.builders import run, statuses, wait_for_steps
from tests.trainyard.emulator.test_lambda_ import (
    code_folder,
    lambda_step,
    log_of,
    make,
    zip_function,
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


@pytest.fixture(scope="module", autouse=True)
def function(aws: Cloud) -> None:
    make(aws, "work", Code={"ZipFile": zip_function(SOURCE)}, Timeout=300)


def work(name: str, x: object, **more) -> dict:
    return lambda_step(name, "work", {"x": x, **more}, y="Float", x="Integer")


def output(step: str, name: str = "x") -> dict:
    return {"Get": f"{step}.OutputParameters['{name}']"}


def marks(aws: Cloud) -> list[str]:
    """Return what began (``+1``) and ended (``-1``), in its order."""
    groups = aws.logs.describe_log_groups(logGroupNamePrefix="/aws/lambda/work")["logGroups"]
    return [line for line in log_of(aws, "work") if line[0] in "+-"] if groups else []


def loop(items: object, body: list[dict], most: int = 10, **selector) -> dict:
    arguments = {"IterableItems": items, "MaxConcurrency": most, "ForEachBody": body}
    arguments |= {"Selector": selector} if selector else {}
    return {"Name": "Loop", "Type": "ForEach", "Arguments": arguments}


def make_loop_members(value: str, *body: dict) -> dict:
    """Return a pipeline's members: a loop over the items that a parameter has."""
    items = {"Name": "Items", "Type": "String", "DefaultValue": value}
    return {"steps": [loop({"Get": "Parameters.Items"}, [*body])], "Parameters": [items]}


def test_each_item_runs_the_body_and_the_best_is_selected(aws: Cloud) -> None:
    items = {"Name": "Items", "Type": "String", "DefaultValue": '[{"v": 1}, {"v": 2}, {"v": 3}]'}
    body = [
        work("First", {"Get": "ForEach.CurrentItem.v"}),
        work("Second", output("Steps.First"), of=ITEM, outer=output("Steps.Before", "y")),
    ]
    field = output("IterationOutput.Second", "y")
    third = output("Steps.Loop.IterationOutputs[2].First")
    count = {"Get": "Steps.Loop.SucceededStepCount"}
    after = work("After", output("Steps.Loop.Selected"), third=third, count=count)
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
    context = {"ParentStepName": "Loop", "Index": 2, "Item": '{"v": 3}'}
    assert steps["First-2"]["IterationContext"] == context
    assert "IterationContext" not in steps["Before"]
    assert marks(aws)[-2:] == ["+2", "-2"], "After got the second item's x"


def test_no_more_run_at_once_than_it_says(aws: Cloud) -> None:
    before = len(marks(aws))
    aws.create("narrow", [loop([1, 2, 4, 5], [work("Item", ITEM, gate="narrow")], most=2)])
    arn = aws.start("narrow")
    until(lambda: len(marks(aws)) == before + 2)
    (code_folder(aws, "work") / "narrow").touch()
    wait_for_steps(aws, arn)
    running, most = 0, 0
    for mark in marks(aws)[before:]:
        running += 1 if mark.startswith("+") else -1
        most = max(most, running)
    assert most == 2


def test_a_failed_item_starts_no_others_and_a_retry_keeps_what_succeeded(aws: Cloud) -> None:
    fail = code_folder(aws, "work") / "fail"
    fail.touch()
    steps = [loop([1, 3, 5], [work("One", ITEM)], most=1), work("Beside", 9)]
    answer, steps = run(aws, "fails", steps)
    assert answer["PipelineExecutionStatus"] == "Failed"
    assert "1 of 3 steps of the loop failed; One-1: " in steps["Loop"]["FailureReason"]
    assert statuses(steps) == {
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
    wait_for_steps(aws, arn)
    assert marks(aws)[before:] == ["+3", "-3", "+5", "-5"]


def test_a_stop_ends_a_loop(aws: Cloud) -> None:
    before = len(marks(aws))
    aws.create("stopped", [loop([1, 2], [work("Long", ITEM, gate="stopped")], most=1)])
    arn = aws.start("stopped", ParallelismConfiguration={"MaxParallelExecutionSteps": 1})
    until(lambda: len(marks(aws)) > before)
    aws.sm.stop_pipeline_execution(PipelineExecutionArn=arn, ClientRequestToken="s" * 32)
    (code_folder(aws, "work") / "stopped").touch()
    steps = wait_for_steps(aws, arn, "Stopped")
    assert statuses(steps) == {"Loop": "Stopped", "Long-0": "Succeeded"}


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
    body = work("First", {"Get": "ForEach.CurrentItem.v"})
    answer, steps = run(aws, f"items-{len(value)}", **make_loop_members(value, body))
    assert answer["PipelineExecutionStatus"] == "Failed"
    assert reason in steps["Loop"]["FailureReason"]


def test_an_empty_list_runs_nothing(aws: Cloud) -> None:
    answer, steps = run(aws, "empty", **make_loop_members("[]", work("First", ITEM)))
    assert answer["PipelineExecutionStatus"] == "Succeeded"
    assert steps["Loop"]["Metadata"]["ForEach"]["TotalStepCount"] == 0


def test_a_body_is_cached_and_kept_from_pruning_by_its_childs_name(aws: Cloud) -> None:
    body = process_step("Shard", "true", CacheConfig={"Enabled": True, "ExpireAfter": "P1D"})
    first, _ = run(aws, "cached", [loop([1], [body])])
    _, steps = aws.run("cached")
    hit = {"SourcePipelineExecutionArn": first["PipelineExecutionArn"]}
    assert steps["Shard-0"]["CacheHitResult"] == hit
    assert "Shard-0" in [unit.cached_step for unit in References(aws.state).units]


ONE = lambda_step("B", "work", {}, x="String")


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([loop([1], [fail_step("F", "x")])], "a Fail step is not allowed in a loop's body"),
        ([loop([], [ONE])], "IterableItems: expected an expression or 1"),
        ([loop([1], [ONE], most=51)], "MaxConcurrency 51: expected 1 to"),
        ([loop([1], [ONE]), lambda_step("C", "work", {"x": output("Steps.B")})],
         "step 'B' runs once per item of 'Loop'"),
        ([loop([1], [ONE]), lambda_step("B-0", "work", {})],
         "step name 'B-0': loop 'Loop' creates a step of this name"),
    ],
)  # fmt: skip
def test_what_no_loop_can_be_is_refused(aws: Cloud, steps: list[dict], said: str) -> None:
    with pytest.raises(ClientError, match=f"ValidationException.*({said})"):
        aws.create("refused", steps)
