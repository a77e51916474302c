"""Search: filters, nested filters, tags, order, pages."""

import time
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.trainyard.emulator.harness import Cloud, channel, fail_step, training

pytestmark = pytest.mark.long


@pytest.fixture(scope="module", autouse=True)
def records(aws: Cloud) -> None:
    for name, rate, data in (("slow", "0.1", "a"), ("fast", "0.5", "b")):
        aws.put(f"{data}/x", "x")
        request = training(f"echo loss={rate}") | {
            "HyperParameters": {"rate": rate, "a.b": name},
            "Tags": [{"Key": "team", "Value": name}],
            "InputDataConfig": [channel("train", f"s3://bkt/{data}/x")],
        }
        metric = {"Name": "loss", "Regex": "loss=([0-9.]+)"}
        request["AlgorithmSpecification"]["MetricDefinitions"] = [metric]
        aws.train(name, "", **request)
    for name in ("first", "second"):
        aws.create(name, [fail_step("Stop", "no")])
    aws.wait_for_execution(aws.start("first", PipelineExecutionDisplayName="once"))
    group = {"ModelPackageGroupName": "models"}
    aws.sm.create_model_package_group(**group)
    aws.sm.create_model_package(**group)
    aws.sm.create_model_package(**group, ModelApprovalStatus="Approved")


def make_filter(name: str, value: Any = None, operator: str | None = None) -> dict:
    given = {"Name": name, "Operator": operator, "Value": value}
    return {key: part for key, part in given.items() if part is not None}


def names(aws: Cloud, *filters: dict, **more: Any) -> list[str]:
    expression = more.pop("expression", {}) | ({"Filters": list(filters)} if filters else {})
    more |= {"SearchExpression": expression} if expression else {}
    answer = aws.sm.search(Resource="TrainingJob", **more)
    return [result["TrainingJob"]["TrainingJobName"] for result in answer["Results"]]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([make_filter("TrainingJobName", "fast")], ["fast"]),
        ([make_filter("TrainingJobName", "fast", "NotEquals")], ["slow"]),
        ([make_filter("TrainingJobName", "AS", "Contains")], ["fast"]),
        ([make_filter("TrainingJobName", "x, slow", "In")], ["slow"]),
        ([make_filter("HyperParameters.rate", "0.10")], ["slow"]),
        ([make_filter("HyperParameters.rate", ".2", "GreaterThan")], ["fast"]),  # as text both were
        ([make_filter("HyperParameters.rate", "0.5", "GreaterThan")], []),
        ([make_filter("HyperParameters.rate", "0.5", "GreaterThanOrEqualTo")], ["fast"]),
        ([make_filter("HyperParameters.rate", "0.5", "LessThan")], ["slow"]),
        ([make_filter("HyperParameters.rate", "0.50", "NotEquals")], ["slow"]),
        ([make_filter("HyperParameters.a.b", "slow")], ["slow"]),
        ([make_filter("Metrics.loss", "0.1", "LessThanOrEqualTo")], ["slow"]),
        ([make_filter("Tags.team", "fast")], ["fast"]),
        ([make_filter("FailureReason", operator="Exists")], []),
        ([make_filter("FailureReason", operator="NotExists")], ["fast", "slow"]),
        (
            [make_filter("TrainingJobStatus", "Completed"), make_filter("Tags.team", "slow")],
            ["slow"],
        ),
        ([make_filter("InputDataConfig.DataSource.S3DataSource.S3Uri", "s3://bkt/b/x")], ["fast"]),
    ],
)
def test_filters(aws: Cloud, filters: list[dict], expected: list[str]) -> None:
    assert names(aws, *filters) == expected


def test_times_or_and_nested_filters(aws: Cloud) -> None:
    now = datetime.fromtimestamp(time.time(), UTC).isoformat()
    assert names(aws, make_filter("CreationTime", now, "GreaterThan")) == []
    assert names(aws, make_filter("CreationTime", now, "LessThan")) == ["fast", "slow"]
    either = {
        "Operator": "Or",
        "Filters": [make_filter("TrainingJobName", n) for n in ("fast", "x")],
    }
    assert names(aws, expression=either) == ["fast"]
    both = {"SubExpressions": [either, {"Filters": [make_filter("Tags.team", "slow")]}]}
    assert names(aws, expression=both) == []
    inside = "InputDataConfig"
    found = [
        make_filter(f"{inside}.ChannelName", "train"),
        make_filter(f"{inside}.DataSource.S3DataSource.S3Uri", "/a/", "Contains"),
    ]
    nested = {"NestedFilters": [{"NestedPropertyName": inside, "Filters": found}]}
    assert names(aws, expression=nested) == ["slow"]


def test_order_and_pages(aws: Cloud) -> None:
    assert names(aws) == ["fast", "slow"]  # the newest first
    assert names(aws, SortBy="Metrics.loss", SortOrder="Ascending") == ["slow", "fast"]
    first = aws.sm.search(Resource="TrainingJob", MaxResults=1)
    assert first["TotalHits"] == {"Value": 2, "Relation": "EqualTo"}
    assert names(aws, NextToken=first["NextToken"]) == ["slow"]


def test_pipelines_executions_and_packages(aws: Cloud) -> None:
    def find_resources(resource: str, *filters: dict) -> list[dict]:
        answer = aws.sm.search(Resource=resource, SearchExpression={"Filters": list(filters)})
        return [result[resource] for result in answer["Results"]]

    [pipeline] = find_resources("Pipeline", make_filter("PipelineName", "first"))
    of_pipeline = make_filter("PipelineArn", pipeline["PipelineArn"])
    [execution] = find_resources(
        "PipelineExecution", of_pipeline, make_filter("PipelineExecutionStatus", "Failed")
    )
    assert execution["PipelineExecutionDisplayName"] == "once"
    [package] = find_resources("ModelPackage", make_filter("ModelApprovalStatus", "Approved"))
    assert package["ModelPackageVersion"] == 2
    [group] = find_resources("ModelPackageGroup", make_filter("ModelPackageGroupName", "models"))
    assert group["ModelPackageGroupStatus"] == "Completed"


def test_what_is_not_searched_is_refused_by_name(aws: Cloud) -> None:
    with pytest.raises(ClientError, match="Resource FeatureGroup is not searched"):
        aws.sm.search(Resource="FeatureGroup")
    with pytest.raises(ClientError, match="Filter TrainingJobName: Equals needs a Value"):
        names(aws, make_filter("TrainingJobName"))
