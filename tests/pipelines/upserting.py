"""Run one upsert in a process of its own, of a small definition whose content is an argument.

python -m tests.pipelines.upserting VALUE [--seconds N] [--stop-at EVENT] [--go-when FILE]
"""

import argparse
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import boto3

from pipelines.compile.compilation import Asset, CompiledPipeline
from pipelines.upsert import upsert
from trainyard.aws_clients import create_client
from trainyard.common.errors import TrainyardError
from trainyard.plan import deployed_pipeline

NAME = "small"
ROLE = "arn:aws:iam::123456789012:role/pipeline"
IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.6.0-cpu-py312"


def clean_aws(environment: Mapping[str, str], monkeypatch: Any) -> tuple[Any, Any]:
    """Clients of the emulator's S3 and SageMaker, without the pipeline of the test before."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    boto3.setup_default_session()  # without what another test listens to
    s3, sagemaker = create_client("s3", "us-east-1"), create_client("sagemaker", "us-east-1")
    if deployed_pipeline.describe_deployed_pipeline(sagemaker, NAME):
        sagemaker.delete_pipeline(PipelineName=NAME)
    s3.create_bucket(Bucket="bkt")
    for item in s3.list_objects_v2(Bucket="bkt").get("Contents", ()):
        s3.delete_object(Bucket="bkt", Key=item["Key"])
    return s3, sagemaker


def definition(value: str, tags: dict[str, str] | None = None) -> CompiledPipeline:
    """A pipeline of two steps, in which ``value`` stands everywhere."""
    code = Asset("bkt", "prefix/small/code", {"a.txt": value.encode(), "b.txt": b"b"})
    application = {"ImageUri": IMAGE, "ContainerEntrypoint": ["echo"],
                   "ContainerArguments": [code.uri]}  # fmt: skip
    machines = {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1}
    arguments = {"AppSpecification": application,
                 "ProcessingResources": {"ClusterConfig": machines}, "RoleArn": ROLE,
                 "StoppingCondition": {"MaxRuntimeInSeconds": 60}, "Environment": {"VALUE": value},
                 "Tags": [{"Key": "team", "Value": "ml"}]}  # fmt: skip
    steps = [{"Name": n, "Type": "Processing", "Arguments": arguments} for n in ("One", "Two")]
    body = {"Version": "2020-12-01", "Metadata": {}, "Parameters": [], "Steps": steps}
    return CompiledPipeline(
        name=NAME,
        description=f"description {value}",
        region="us-east-1",
        role=ROLE,
        body=json.dumps(body),
        assets=(code,),
        max_parallel_steps=1 + len(value),
        tags={"value": value} if tags is None else tags,
        kms_key=None,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("value")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--stop-at", default="")
    parser.add_argument("--go-when", type=Path)
    given = parser.parse_args()
    if given.stop_at:
        _stop_at(given.stop_at)
    print("ready", flush=True)
    while given.go_when and not given.go_when.exists():
        time.sleep(0.005)
    try:
        print(upsert(definition(given.value), lock_seconds=given.seconds).change, flush=True)
    except TrainyardError as error:
        print(error, flush=True)
        sys.exit(1)


def _stop_at(event: str) -> None:
    """Say so and wait to be killed when botocore comes to ``event``, in any client made later."""

    def stop(**_: object) -> None:
        print("stopped", flush=True)
        time.sleep(600)

    boto3.setup_default_session()
    boto3.DEFAULT_SESSION._session.register(event, stop)


if __name__ == "__main__":
    main()
