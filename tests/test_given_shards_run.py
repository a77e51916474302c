"""A pipeline begins at shards that another one wrote; verify reads them again for its package."""

import time

import boto3
import pytest

from pipelines.definition import from_recipe
from pipelines.registry.verification import verify
from pipelines.start import start
from pipelines.upsert import upsert
from tests.conftest import CHECKOUT
from trainyard.language.definition_document import END_STATUSES
from trainyard.runs.execution import Execution
from trainyard.runs.run_display import model_package

pytestmark = [pytest.mark.slow, pytest.mark.sweep]
SMALL = (
    "gate={max_bits_per_byte: 8.5, min_groups: 2}",
    "workload.config={context_length: 64, layers: 1, heads: 2, dim: 32}",
    "train.loop.max_steps=8",
    "train.loop.warmup_steps=1",
    "train.loop.validation_interval=4",
    "train.loop.validation_samples=8",
)
SHARD = "shard={instance_count: 1, key: key, validation_share: 0.3, test_share: 0.2}"


def run(*settings: str) -> Execution:
    """Run the laptop's recipe with these settings to its end."""
    compiled = from_recipe(CHECKOUT / "recipes/laptop.yaml", (*SMALL, *settings))
    upsert(compiled)
    execution = Execution(start(compiled.name, {}))
    while execution.describe()["PipelineExecutionStatus"] not in END_STATUSES:
        time.sleep(0.3)
    return execution


def mismatches(package: str) -> dict[str, str]:
    return {
        check.name: check.detail
        for check in verify(package, deep=True)
        if check.status == "mismatch"
    }


def test_a_package_of_given_shards_is_verified_to_the_last_byte(small_corpus):
    steps = {step.name: step for step in run(SHARD).steps()}
    job = boto3.client("sagemaker").describe_processing_job(ProcessingJobName=steps["Shard"].job[1])
    outputs = job["ProcessingOutputConfig"]["Outputs"]
    [train] = [o["S3Output"]["S3Uri"] for o in outputs if o["OutputName"] == "train"]
    shards = train.removesuffix("/").removesuffix("/train")

    execution = run(f"data={{shards: {shards}}}", "shard={}", "pipeline.name=given")
    assert "Shard" not in {step.name for step in execution.steps()}
    package = model_package(execution.steps())
    assert package and not mismatches(package)

    s3, (bucket, _, prefix) = boto3.client("s3"), shards[5:].partition("/")
    listed = s3.list_objects_v2(Bucket=bucket, Prefix=f"{prefix}/test/")["Contents"]
    key = next(found["Key"] for found in listed if found["Key"].endswith(".npy"))
    content = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
    s3.put_object(Bucket=bucket, Key=key, Body=content[:-1] + bytes([content[-1] ^ 1]))
    assert any(key.rpartition("/")[2] in text for text in mismatches(package).values())
