"""Cleanup steps delete exactly the outputs of earlier steps in S3."""

import pytest

from tests.trainyard.emulator.harness import Cloud, cloud, process_step, train_step
from tests.trainyard.emulator.test_lambda_ import lambda_step

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory):
    with cloud(tmp_path_factory.mktemp("aws")) as running:
        running.put("out/kept.txt", "k")
        running.put("elsewhere/file.txt", "e")
        yield running


def cleanup_step(*sources: dict) -> dict:
    waits = [{"Step": source["StepName"], "Trigger": "Any"} for source in sources]
    resources = {"Resources": {"S3": list(sources)}}
    return {"Name": "Clean", "Type": "Cleanup", "Arguments": resources, "DependsOn": waits}


def test_what_is_named_goes_and_nothing_else(aws: Cloud) -> None:
    write = "for n in a b; do echo $n > /opt/ml/processing/out/$n.txt; done"
    file = {
        "Std:Join": {
            "On": "/",
            "Values": [
                {"Get": "Steps.Shard.ProcessingOutputConfig.Outputs['out'].S3Output.S3Uri"},
                "a.txt",
            ],
        }
    }
    steps = [
        process_step("Shard", write, outputs={"out": "s3://bkt/out"}),
        train_step("Train", "echo w > /opt/ml/model/w; echo d > /opt/ml/output/data/d"),
        cleanup_step({"StepName": "Shard", "S3Uris": [file]}, {"StepName": "Train"}),
    ]
    aws.create("cleans", steps)
    answer, steps = aws.run("cleans")
    assert answer["PipelineExecutionStatus"] == "Succeeded", steps
    assert steps["Clean"]["Metadata"]["Cleanup"] == {
        "CleanedSteps": ["Shard", "Train"],
        "FailedSteps": [],
        "SkippedSteps": [],
    }
    assert aws.keys() == ["elsewhere/file.txt", "out/b.txt", "out/kept.txt"]


def test_what_is_not_its_own_stays_and_fails_the_step(aws: Cloud) -> None:
    mine = {"StepName": "Shard", "S3Uris": ["s3://bkt/out/c.txt", "s3://bkt/elsewhere/file.txt"]}
    steps = [
        process_step(
            "Shard", "echo c > /opt/ml/processing/out/c.txt", outputs={"out": "s3://bkt/out"}
        ),
        lambda_step("Bad", "none", {}),
        cleanup_step(mine, {"StepName": "Bad"}),
    ]
    aws.create("refuses", steps)
    answer, steps = aws.run("refuses")
    assert answer["PipelineExecutionStatus"] == "Failed"
    made = steps["Clean"]["Metadata"]["Cleanup"]
    assert (made["CleanedSteps"], made["SkippedSteps"]) == ([], ["Bad"])
    assert made["FailedSteps"][0]["ErrorCode"] == "ClientError"
    assert "'s3://bkt/elsewhere/file.txt' does not lie where" in steps["Clean"]["FailureReason"]
    assert {"out/c.txt", "elsewhere/file.txt"} <= set(aws.keys()), "all or none of a source"
