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
    aws.ended(aws.start("first", PipelineExecutionDisplayName="once"))
    group = {"ModelPackageGroupName": "models"}
    aws.sm.create_model_package_group(**group)
    aws.sm.create_model_package(**group)
    aws.sm.create_model_package(**group, ModelApprovalStatus="Approved")


def one(name: str, value: Any = None, operator: str | None = None) -> dict:
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
        ([one("TrainingJobName", "fast")], ["fast"]),
        ([one("TrainingJobName", "fast", "NotEquals")], ["slow"]),
        ([one("TrainingJobName", "AS", "Contains")], ["fast"]),
        ([one("TrainingJobName", "x, slow", "In")], ["slow"]),
        ([one("HyperParameters.rate", "0.10")], ["slow"]),
        ([one("HyperParameters.rate", ".2", "GreaterThan")], ["fast"]),  # as text both were
        ([one("HyperParameters.rate", "0.5", "GreaterThan")], []),
        ([one("HyperParameters.rate", "0.5", "GreaterThanOrEqualTo")], ["fast"]),
        ([one("HyperParameters.rate", "0.5", "LessThan")], ["slow"]),
        ([one("HyperParameters.rate", "0.50", "NotEquals")], ["slow"]),
        ([one("HyperParameters.a.b", "slow")], ["slow"]),
        ([one("Metrics.loss", "0.1", "LessThanOrEqualTo")], ["slow"]),
        ([one("Tags.team", "fast")], ["fast"]),
        ([one("FailureReason", operator="Exists")], []),
        ([one("FailureReason", operator="NotExists")], ["fast", "slow"]),
        ([one("TrainingJobStatus", "Completed"), one("Tags.team", "slow")], ["slow"]),
        ([one("InputDataConfig.DataSource.S3DataSource.S3Uri", "s3://bkt/b/x")], ["fast"]),
    ],
)
def test_filters(aws: Cloud, filters: list[dict], expected: list[str]) -> None:
    assert names(aws, *filters) == expected


def test_times_or_and_nested_filters(aws: Cloud) -> None:
    now = datetime.fromtimestamp(time.time(), UTC).isoformat()
    assert names(aws, one("CreationTime", now, "GreaterThan")) == []
    assert names(aws, one("CreationTime", now, "LessThan")) == ["fast", "slow"]
    either = {"Operator": "Or", "Filters": [one("TrainingJobName", n) for n in ("fast", "x")]}
    assert names(aws, expression=either) == ["fast"]
    both = {"SubExpressions": [either, {"Filters": [one("Tags.team", "slow")]}]}
    assert names(aws, expression=both) == []
    inside = "InputDataConfig"
    found = [
        one(f"{inside}.ChannelName", "train"),
        one(f"{inside}.DataSource.S3DataSource.S3Uri", "/a/", "Contains"),
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
    def found(resource: str, *filters: dict) -> list[dict]:
        answer = aws.sm.search(Resource=resource, SearchExpression={"Filters": list(filters)})
        return [result[resource] for result in answer["Results"]]

    [pipeline] = found("Pipeline", one("PipelineName", "first"))
    of_pipeline = one("PipelineArn", pipeline["PipelineArn"])
    [execution] = found("PipelineExecution", of_pipeline, one("PipelineExecutionStatus", "Failed"))
    assert execution["PipelineExecutionDisplayName"] == "once"
    [package] = found("ModelPackage", one("ModelApprovalStatus", "Approved"))
    assert package["ModelPackageVersion"] == 2
    [group] = found("ModelPackageGroup", one("ModelPackageGroupName", "models"))
    assert group["ModelPackageGroupStatus"] == "Completed"


def test_what_is_not_searched_is_refused_by_name(aws: Cloud) -> None:
    with pytest.raises(ClientError, match="Resource FeatureGroup is not searched"):
        aws.sm.search(Resource="FeatureGroup")
    with pytest.raises(ClientError, match="Filter TrainingJobName: Equals needs a Value"):
        names(aws, one("TrainingJobName"))
