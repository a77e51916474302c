"""Regions are separate, and their names are in all resources created there; pages of lists."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainyard.emulator.harness import ROLE, cloud, pipeline, process_step
from tests.trainyard.emulator.standin import make_client
from trainyard.emulator.request_scope import (
    ApiError,
    Thread,
    enter_scope,
    make_page,
    read_region,
    sort_items,
)
from trainyard.emulator.sagemaker.pruning import plan_pruning

pytestmark = pytest.mark.long

WEST = "arn:aws:sagemaker:us-west-2:123456789012:"


def test_a_pipeline_runs_where_its_client_is(tmp_path: Path) -> None:
    script = """aws sagemaker create-model-package-group --model-package-group-name made
        echo $AWS_REGION > /opt/ml/processing/out/region"""
    steps = [process_step("one", script, outputs={"out": "s3://bkt/out"})]
    with cloud(tmp_path) as aws:
        west = make_client(aws.endpoint, "sagemaker", "us-west-2")
        text, token = json.dumps(pipeline(steps)), "t" * 32
        made = west.create_pipeline(
            PipelineName="p", PipelineDefinition=text, RoleArn=ROLE, ClientRequestToken=token
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
        logs = make_client(aws.endpoint, "logs", "us-west-2").describe_log_groups()["logGroups"]
        assert [group["arn"].split(":")[3] for group in logs] == ["us-west-2"]
        assert not aws.sm.list_pipelines()["PipelineSummaries"]
        assert not aws.sm.list_model_package_groups()["ModelPackageGroupSummaryList"]
        aws.create("p", [process_step("one", "true")])  # a name of another region's is free
        assert aws.run("p")[0]["PipelineExecutionStatus"] == "Succeeded"
    with cloud(tmp_path) as aws:
        [found] = make_client(aws.endpoint, "sagemaker", "us-west-2").list_pipelines()[
            "PipelineSummaries"
        ]
        assert found["PipelineArn"] == f"{WEST}pipeline/p"
        assert aws.endpoint.app.worlds.names == ["us-east-1", "us-west-2"]
        going = plan_pruning(tmp_path, aws.endpoint.app.objects, 0, None, include_cached=True)
        assert len(going.units) == 1 and not going.objects, "what another region refers to stays"


def test_a_thread_works_for_the_region_of_its_maker() -> None:
    found: list[str] = []
    with enter_scope("eu-central-1"):
        thread = Thread(target=lambda: found.append(read_region()))
    thread.start()
    thread.join()
    assert found == ["eu-central-1"] and read_region() == "us-east-1"
    with enter_scope("nonsense"):
        assert read_region() == "us-east-1"


@given(st.lists(st.integers()), st.integers(1, 7))
def test_pages_put_together_are_the_list(numbers: list[int], size: int) -> None:
    items, got, request = [{"N": n} for n in numbers], [], {"MaxResults": size}
    while True:
        answer = make_page("Items", items, request, 10)
        got += answer["Items"]
        assert len(answer["Items"]) <= size
        if "NextToken" not in answer:
            break
        request["NextToken"] = answer["NextToken"]
    assert got == items


@given(st.lists(st.integers()))
def test_order(numbers: list[int]) -> None:
    items = [{"N": n} for n in numbers]
    up = sort_items(items, {"SortOrder": "Ascending"}, {"Number": "N"}, "Number", "Descending")
    assert [item["N"] for item in up] == sorted(numbers)
    assert sort_items(items, {}, {"Number": "N"}, "Number", "Descending") == up[::-1]


def test_what_is_not_known_is_refused() -> None:
    with pytest.raises(ApiError, match="SortBy 'Colour'"):
        sort_items([], {"SortBy": "Colour"}, {"Number": "N"}, "Number", "Ascending")
    with pytest.raises(ApiError, match="NextToken"):
        make_page("Items", [], {"NextToken": "x"}, 10)
