"""What a pipeline left is listed, and removed when its name is typed."""

import io
import json
import sys

import boto3
import pytest

from pipelines.definition import from_recipe
from pipelines.endpoint import rollout
from pipelines.endpoint.endpoint_requests import Release
from pipelines.endpoint.rollout import deploy_release
from pipelines.infrastructure.removal_plan import list_leftovers
from pipelines.recipe.read_recipe import load_recipe
from pipelines.upsert import upsert
from tests.conftest import CHECKOUT, call_module
from tests.pipelines.endpoint.test_rollout import register_package
from tests.pipelines.upserting import NAME, clean_aws, definition
from trainyard.common.errors import PlanError

pytestmark = pytest.mark.long
WHAT = (NAME, "group", "us-east-1", "bkt", "prefix/small")
LAPTOP = CHECKOUT / "recipes/laptop.yaml"
ROLE = "arn:aws:iam::123456789012:role/jobs"


@pytest.fixture(autouse=True)
def aws(emulator, monkeypatch: pytest.MonkeyPatch):
    return clean_aws(emulator.env, monkeypatch)


def test_a_model_that_was_created_from_an_object_keeps_it_and_nothing_else(aws):
    s3, sagemaker = aws
    upsert(definition("1"))
    code = {item["Key"] for item in s3.list_objects_v2(Bucket="bkt")["Contents"]}
    keys = [f"prefix/small/runs/{run}/model.tar.gz" for run in ("a", "b")]
    for key in [*keys, "prefix/small-too/runs/a/model.tar.gz"]:
        s3.put_object(Bucket="bkt", Key=key, Body=b"weights")
    image = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-inference:2.6.0-cpu-py312"
    container = {"Image": image, "ModelDataUrl": f"s3://bkt/{keys[0]}"}
    sagemaker.create_model(ModelName="served", ExecutionRoleArn=ROLE, PrimaryContainer=container)
    left = list_leftovers(*WHAT)
    assert left.exists and not left.executions and not left.packages
    assert set(left.kept_objects) == {keys[0]} and left.kept_objects[keys[0]] == len(b"weights")
    assert set(left.removable_objects) == {keys[1], *code}
    assert [arn.rpartition("/")[2] for arn in left.models] == ["served"]
    sagemaker.delete_model(ModelName="served")


def test_nothing_is_said_while_an_execution_runs(aws):
    _, sagemaker = aws
    queue = boto3.client("sqs").create_queue(QueueName="waits")["QueueUrl"]
    step = {"Name": "Wait", "Type": "Callback", "SqsQueueUrl": queue, "Arguments": {}}
    body = json.dumps({"Version": "2020-12-01", "Steps": [step]})
    sagemaker.create_pipeline(PipelineName="waits", PipelineDefinition=body, RoleArn=ROLE)
    arn = sagemaker.start_pipeline_execution(PipelineName="waits")["PipelineExecutionArn"]
    with pytest.raises(
        PlanError, match=r"waits: execution arn.* is Executing: wait until it has ended"
    ):
        list_leftovers("waits", *WHAT[1:])
    sagemaker.stop_pipeline_execution(PipelineExecutionArn=arn)


def test_typed_by_its_name_a_pipeline_without_models_is_removed_whole(aws, monkeypatch):
    s3, sagemaker = aws
    compiled = from_recipe(LAPTOP)
    upsert(compiled)
    bucket, name = compiled.assets[0].bucket, compiled.name
    sagemaker.create_model_package_group(ModelPackageGroupName="trainyard-laptop")
    s3.put_object(Bucket=bucket, Key="raw/mine.txt", Body=b"raw")

    def list_keys() -> set[str]:
        return {item["Key"] for item in s3.list_objects_v2(Bucket=bucket)["Contents"]}

    before = list_keys()
    listed = call_module("pipelines.teardown", "--recipe", str(LAPTOP))
    assert listed.returncode == 0 and "removed" in listed.stdout and list_keys() == before
    monkeypatch.setattr(sys, "stdin", io.StringIO("trainyard\n"))
    refused = call_module("pipelines.teardown", "--recipe", str(LAPTOP), "--remove")
    assert refused.returncode == 1 and "nothing was removed" in refused.stderr
    assert list_keys() == before
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{name}\n"))
    done = call_module("pipelines.teardown", "--recipe", str(LAPTOP), "--remove")
    assert done.returncode == 0, done.stdout + done.stderr
    assert list_keys() == {"raw/mine.txt"}
    assert sagemaker.list_pipelines(PipelineNamePrefix=name)["PipelineSummaries"] == []
    groups = sagemaker.list_model_package_groups(NameContains="trainyard-laptop")
    assert groups["ModelPackageGroupSummaryList"] == []


@pytest.mark.sweep
def test_what_serves_a_package_stays_as_long_as_it_and_captured_requests_stay(aws, monkeypatch):
    s3, sagemaker = aws
    monkeypatch.setattr(rollout, "POLL_SECONDS", 0.2)
    group, sets = "trainyard-laptop", ["deploy.endpoint=live", "deploy.capture_share=1"]
    recipe, compiled = load_recipe(LAPTOP, sets), from_recipe(LAPTOP, sets)
    upsert(compiled)
    bucket, name = compiled.assets[0].bucket, compiled.name
    sagemaker.create_model_package_group(ModelPackageGroupName=group)
    package, root = register_package(1, 1.0, group), f"{recipe.aws.prefix}/{name}"
    captured = f"{root}/captured/live/version-1/2026/11/28/12/a.jsonl"
    s3.put_object(Bucket=bucket, Key=captured, Body=b"{}")
    deployed = Release(recipe, package, ROLE, f"s3://{bucket}/{root}/captured")
    assert deploy_release(deployed, print).is_serving
    asked = ["--recipe", str(LAPTOP), *(word for one in sets for word in ("--set", one))]

    def torn_down() -> str:
        monkeypatch.setattr(sys, "stdin", io.StringIO(f"{name}\n"))
        done = call_module("pipelines.teardown", *asked, "--remove")
        assert done.returncode == 0, done.stdout + done.stderr
        return " ".join(done.stdout.split())

    said = torn_down()
    assert "endpoint live" in said and "it serves" in said and "kept" in said, said
    endpoint = sagemaker.describe_endpoint(EndpointName="live")
    config = endpoint["EndpointConfigName"]
    assert endpoint["EndpointStatus"] == "InService" and config in said
    assert s3.get_object(Bucket=bucket, Key=captured)["Body"].read() == b"{}"

    upsert(compiled)
    sagemaker.delete_model_package(ModelPackageName=package)
    listed = call_module("pipelines.teardown", *asked)
    assert "endpoint live" in listed.stdout
    assert sagemaker.list_endpoints()["Endpoints"], "listing removes nothing"
    torn_down()
    assert sagemaker.list_endpoints()["Endpoints"] == []
    assert sagemaker.list_endpoint_configs(NameContains="live-")["EndpointConfigs"] == []
    assert sagemaker.list_models(NameContains="live-")["Models"] == []
    alarms = boto3.client("cloudwatch").describe_alarms(AlarmNamePrefix="live-")
    assert alarms["MetricAlarms"] == []
    left = s3.list_objects_v2(Bucket=bucket, Prefix=root)["Contents"]
    assert [one["Key"] for one in left] == [captured]

    # an endpoint that serves another model is not the pipeline's
    sagemaker.create_model_package_group(ModelPackageGroupName="others")
    recipe = load_recipe(LAPTOP, ["deploy.endpoint=shared"])
    assert deploy_release(
        Release(recipe, register_package(2, 1.0, "others"), ROLE, "s3://b/c"), print
    ).is_serving
    left = list_leftovers(*WHAT, "shared").endpoint_resources
    assert left and "shared-others-1, which no deployment of group group" in left.kept_by
    assert not (left.kept_names or left.configs or left.models or left.alarms)
    sagemaker.delete_endpoint(EndpointName="shared")
