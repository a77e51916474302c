"""Regions are separate, and their names are in all resources created there."""

import json
from pathlib import Path

import boto3
import pytest

from tests.trainyard.emulator.harness import ROLE, Cloud, cloud, pipeline, process_step
from trainyard.emulator.request_scope import Thread, enter_scope, region
from trainyard.emulator.sagemaker.pruning import choose

pytestmark = pytest.mark.long

WEST = "arn:aws:sagemaker:us-west-2:123456789012:"


def in_west(aws: Cloud, service: str):
    return boto3.client(
        service,
        endpoint_url=aws.endpoint.url,
        region_name="us-west-2",
        aws_access_key_id=aws.endpoint.env["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=aws.endpoint.env["AWS_SECRET_ACCESS_KEY"],
    )


def test_a_pipeline_runs_where_its_client_is(tmp_path: Path) -> None:
    script = """aws sagemaker create-model-package-group --model-package-group-name made
        echo $AWS_REGION > /opt/ml/processing/out/region"""
    steps = [process_step("one", script, outputs={"out": "s3://bkt/out"})]
    with cloud(tmp_path) as aws:
        west = in_west(aws, "sagemaker")
        made = west.create_pipeline(
            PipelineName="p",
            PipelineDefinition=json.dumps(pipeline(steps)),
            RoleArn=ROLE,
            ClientRequestToken="t" * 32,
        )
        assert made["PipelineArn"] == f"{WEST}pipeline/p"
        arn = west.start_pipeline_execution(PipelineName="p")["PipelineExecutionArn"]
        assert arn.startswith(f"{WEST}pipeline/p/execution/")
        assert aws.endpoint.wait(arn)["PipelineExecutionStatus"] == "Succeeded"
        [step] = west.list_pipeline_execution_steps(PipelineExecutionArn=arn)[
            "PipelineExecutionSteps"
        ]
        assert step["Metadata"]["ProcessingJob"]["Arn"].startswith(f"{WEST}processing-job/")
        [group] = west.list_model_package_groups()["ModelPackageGroupSummaryList"]
        assert group["ModelPackageGroupArn"] == f"{WEST}model-package-group/made"
        assert aws.get("out/region") == b"us-west-2\n"
        logs = in_west(aws, "logs").describe_log_groups()["logGroups"]
        assert [group["arn"].split(":")[3] for group in logs] == ["us-west-2"]
        assert not aws.sm.list_pipelines()["PipelineSummaries"]
        assert not aws.sm.list_model_package_groups()["ModelPackageGroupSummaryList"]
        aws.create("p", steps)  # a name of another region's is free
        assert aws.run("p")[0]["PipelineExecutionStatus"] == "Succeeded"
    with cloud(tmp_path) as aws:
        [found] = in_west(aws, "sagemaker").list_pipelines()["PipelineSummaries"]
        assert found["PipelineArn"] == f"{WEST}pipeline/p"
        assert aws.endpoint.app.worlds.names == ["us-east-1", "us-west-2"]
        going = choose(tmp_path, aws.endpoint.app.objects, 0, None, include_cached=True)
        assert len(going.units) == 1 and not going.objects, "what another region refers to stays"


def test_a_thread_works_for_the_region_of_its_maker() -> None:
    found: list[str] = []
    with enter_scope("eu-central-1"):
        thread = Thread(target=lambda: found.append(region()))
    thread.start()
    thread.join()
    assert found == ["eu-central-1"] and region() == "us-east-1"
    with enter_scope("nonsense"):
        assert region() == "us-east-1"
