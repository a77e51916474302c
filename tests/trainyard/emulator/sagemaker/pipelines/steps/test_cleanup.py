"""Cleanup steps delete exactly the outputs of earlier steps in S3."""

import pytest

from tests.trainyard.emulator.harness import Cloud, process_step, train_step
from tests.trainyard.emulator.sagemaker.builders import join_values, run
from tests.trainyard.emulator.test_lambda_ import lambda_step

pytestmark = pytest.mark.long


@pytest.fixture(scope="module", autouse=True)
def kept_files(aws: Cloud) -> None:
    aws.put("out/kept.txt", "k")
    aws.put("elsewhere/file.txt", "e")


def shard_step(script: str) -> dict:
    script = f"cd /opt/ml/processing/out; {script}"
    return process_step("Shard", script, outputs={"out": "s3://bkt/out"})


def cleanup_step(*sources: dict) -> dict:
    waits = [{"Step": source["StepName"], "Trigger": "Any"} for source in sources]
    resources = {"Resources": {"S3": list(sources)}}
    return {"Name": "Clean", "Type": "Cleanup", "Arguments": resources, "DependsOn": waits}


def test_what_is_named_goes_and_nothing_else(aws: Cloud) -> None:
    folder = {"Get": "Steps.Shard.ProcessingOutputConfig.Outputs['out'].S3Output.S3Uri"}
    mine = {"StepName": "Shard", "S3Uris": [join_values("/", folder, "a.txt")]}
    steps = [
        shard_step("echo a > a.txt; echo b > b.txt"),
        train_step("Train", "echo w > /opt/ml/model/w; echo d > /opt/ml/output/data/d"),
        cleanup_step(mine, {"StepName": "Train"}),
    ]
    answer, steps = run(aws, "cleans", steps)
    assert answer["PipelineExecutionStatus"] == "Succeeded", steps
    cleaned = {"CleanedSteps": ["Shard", "Train"], "FailedSteps": [], "SkippedSteps": []}
    assert steps["Clean"]["Metadata"]["Cleanup"] == cleaned
    assert aws.keys() == ["elsewhere/file.txt", "out/b.txt", "out/kept.txt"]


def test_what_is_not_its_own_stays_and_fails_the_step(aws: Cloud) -> None:
    mine = {"StepName": "Shard", "S3Uris": ["s3://bkt/out/c.txt", "s3://bkt/elsewhere/file.txt"]}
    clean = cleanup_step(mine, {"StepName": "Bad"})
    steps = [shard_step("echo c > c.txt"), lambda_step("Bad", "none", {}), clean]
    answer, steps = run(aws, "refuses", steps)
    assert answer["PipelineExecutionStatus"] == "Failed"
    made = steps["Clean"]["Metadata"]["Cleanup"]
    assert (made["CleanedSteps"], made["SkippedSteps"]) == ([], ["Bad"])
    assert made["FailedSteps"][0]["ErrorCode"] == "ClientError"
    assert (
        "'s3://bkt/elsewhere/file.txt' is not below a location of step"
        in steps["Clean"]["FailureReason"]
    )
    assert {"out/c.txt", "elsewhere/file.txt"} <= set(aws.keys()), "all or none of a source"
