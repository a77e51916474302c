"""Batch transform through boto3 and as a step: real containers, records counted, failures kept."""

import gzip
import json
import time

import pytest
from botocore.exceptions import ClientError

from tests.trainyard.emulator.harness import Cloud, until
from tests.trainyard.emulator.sagemaker.builders import wait_for_transform
from tests.trainyard.emulator.sagemaker.endpoints.test_endpoints import model

pytestmark = [pytest.mark.slow, pytest.mark.long]

DOUBLE = """
import os, time
def model_fn(model_dir): return 2
def input_fn(body, content_type):
    text = body.decode() if isinstance(body, bytes) else body
    return [line.split(",") for line in text.split("\\n")]
def predict_fn(rows, model):
    assert os.environ["SAGEMAKER_BATCH"] == "true"
    if rows[0][0] == "sleep": time.sleep(60)
    if rows[0][0] == "die": os._exit(3)
    return [str(model * sum(map(float, row))) for row in rows]
def output_fn(answers, accept): return "\\n".join(answers) + "\\n"
"""


@pytest.fixture(scope="module")
def batch(aws: Cloud) -> Cloud:
    model(aws, "double", "x", DOUBLE)
    return aws


ONCE = {"ModelClientConfig": {"InvocationsMaxRetries": 0}}


def request(prefix: str, **more) -> dict:
    source = {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": f"s3://bkt/{prefix}"}}
    asked = {"DataSource": source, "ContentType": "text/csv", "SplitType": "Line"}
    output = {"S3OutputPath": "s3://bkt/out", "Accept": "text/csv", "AssembleWith": "Line"}
    return {
        "ModelName": "double",
        "TransformInput": asked | more.pop("source", {}),
        "TransformOutput": output | more.pop("output", {}),
        "TransformResources": {"InstanceType": "ml.m5.large", "InstanceCount": 1},
        **more,
    }


def transform(cloud: Cloud, name: str, prefix: str, **more) -> dict:
    cloud.sm.create_transform_job(TransformJobName=name, **request(prefix, **more))
    return wait_for_transform(cloud, name)


def test_each_object_has_its_output_or_none_and_the_failed_one_is_named(batch):
    batch.put("in/a.csv", "1,2\n3,4\n5,6\n")
    batch.put("in/deep/b.csv", "7,8")
    batch.put("in/bad.csv", "1,2\nno number,3\n")
    resources = {"InstanceType": "ml.m5.large", "InstanceCount": 2}
    once = ONCE | {"BatchStrategy": "SingleRecord", "TransformResources": resources}
    found = transform(batch, "several", "in/", **once)
    assert found["TransformJobStatus"] == "Failed"
    assert "1 of 3 objects failed" in found["FailureReason"]
    assert "s3://bkt/in/bad.csv" in found["FailureReason"]
    assert "could not convert string to float" in found["FailureReason"]
    assert batch.keys("out") == ["out/a.csv.out", "out/deep/b.csv.out"]
    assert batch.get("out/a.csv.out") == b"6.0\n14.0\n22.0\n"
    group = {"logGroupName": "/aws/sagemaker/TransformJobs"}
    lines = [event["message"] for event in batch.logs.filter_log_events(**group)["events"]]
    assert any("BatchStrategy=SINGLE_RECORD" in line for line in lines)
    assert any("Bad HTTP status received from algorithm: 500" in line for line in lines)
    assert not list((batch.state / "jobs/several").glob("algo-*"))


def test_a_record_that_ends_the_container_costs_its_object_alone(batch):
    batch.put("mortal/a.csv", "die,1\n")
    batch.put("mortal/b.csv", "1,2\n")
    output = {"S3OutputPath": "s3://bkt/mortal-out"}
    found = transform(batch, "mortal", "mortal/", output=output, **ONCE)
    assert found["TransformJobStatus"] == "Failed"
    assert "1 of 2 objects failed" in found["FailureReason"]
    assert "s3://bkt/mortal/a.csv" in found["FailureReason"]
    assert "the container ended" in found["FailureReason"]
    assert batch.keys("mortal-out") == ["mortal-out/b.csv.out"]


def test_gzip_a_manifest_and_a_join(batch):
    batch.put("zip/x.csv.gz", gzip.compress(b"id1,1,2\nid2,3,4\n"))
    batch.put("zip/manifest", json.dumps([{"prefix": "s3://bkt/zip/"}, "x.csv.gz"]))
    source = {"S3DataSource": {"S3DataType": "ManifestFile", "S3Uri": "s3://bkt/zip/manifest"}}
    found = transform(
        batch, "joined", "unused",
        source={"CompressionType": "Gzip", "DataSource": source},
        output={"S3OutputPath": "s3://bkt/joined/"},
        DataProcessing={"InputFilter": "$[1:]", "JoinSource": "Input", "OutputFilter": "$[0,-1]"},
    )  # fmt: skip
    assert found["TransformJobStatus"] == "Completed", found
    assert batch.get("joined/x.csv.gz.out") == b"id1,6.0\nid2,14.0\n"


def test_a_step_of_a_pipeline_runs_it_once_and_then_the_cache_has_it(batch):
    batch.put("step/a.csv", "1,1\n")
    step = {"Name": "batch", "Type": "Transform", "CacheConfig": {"Enabled": True},
            "Arguments": request("step", output={"S3OutputPath": "s3://bkt/stepped"})}  # fmt: skip
    path = {"Get": "Steps.batch.TransformOutput.S3OutputPath"}
    end = {"Name": "end", "Type": "Fail", "Arguments": {"ErrorMessage": path}}
    batch.create("transforming", [step])
    for hit in (False, True):
        execution, steps = batch.run("transforming")
        assert execution["PipelineExecutionStatus"] == "Succeeded", steps
        assert ("CacheHitResult" in steps["batch"]) == hit
    arn = steps["batch"]["Metadata"]["TransformJob"]["Arn"]
    listed = batch.sm.list_transform_jobs(NameContains="batch")["TransformJobSummaries"]
    assert [job["TransformJobArn"] for job in listed] == [arn]
    batch.create("described", [step, end])
    assert "s3://bkt/stepped" in batch.run("described")[0]["FailureReason"]


def test_a_stopped_job_leaves_nothing(batch):
    batch.put("slow/a.csv", "sleep\n")
    asked = request("slow", output={"S3OutputPath": "s3://bkt/slowly"})
    batch.sm.create_transform_job(TransformJobName="slow", **asked)
    until(lambda: "TransformStartTime" in batch.sm.describe_transform_job(TransformJobName="slow"))
    time.sleep(0.3)
    batch.sm.stop_transform_job(TransformJobName="slow")
    assert wait_for_transform(batch, "slow")["TransformJobStatus"] == "Stopped"
    assert batch.keys("slowly") == []


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"ModelName": "nobody"}, "Could not find model"),
        ({"MaxPayloadInMB": 60, "MaxConcurrentTransforms": 2}, "more than 100 MB"),
        ({"DataProcessing": {"InputFilter": "$..x"}}, "not an operator"),
        ({"DataCaptureConfig": {"DestinationS3Uri": "s3://bkt/x"}}, "DataCaptureConfig"),
    ],
)
def test_what_cannot_be_run_is_refused_by_name(batch, changes, says):
    with pytest.raises(ClientError, match=says):
        transform(batch, "refused", "in/", **changes)
