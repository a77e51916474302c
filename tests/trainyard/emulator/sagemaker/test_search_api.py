"""Search: filters, nested filters, tags, order, pages."""

import time
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from tests.trainyard.emulator.harness import Cloud, channel, cloud, fail_step, training
from trainyard.emulator.sagemaker.search_api import search

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory):
    with cloud(tmp_path_factory.mktemp("aws")) as running:
        for name, rate, data in (("slow", "0.1", "a"), ("fast", "0.5", "b")):
            running.put(f"{data}/x", "x")
            more = {
                "HyperParameters": {"rate": rate, "a.b": name},
                "Tags": [{"Key": "team", "Value": name}],
                "InputDataConfig": [channel("train", f"s3://bkt/{data}/x")],
            }
            request = training(f"echo loss={rate}") | more
            metric = {"Name": "loss", "Regex": "loss=([0-9.]+)"}
            request["AlgorithmSpecification"]["MetricDefinitions"] = [metric]
            running.train(name, "", **request)
        running.create("first", [fail_step("Stop", "no")])
        running.create("second", [fail_step("Stop", "no")])
        running.ended(running.start("first", PipelineExecutionDisplayName="once"))
        running.sm.create_model_package_group(ModelPackageGroupName="models")
        running.sm.create_model_package(ModelPackageGroupName="models")
        running.sm.create_model_package(
            ModelPackageGroupName="models", ModelApprovalStatus="Approved"
        )
        yield running


def one(name: str, value: Any = None, operator: str | None = None) -> dict:
    given = {"Name": name, "Operator": operator, "Value": value}
    return {key: part for key, part in given.items() if part is not None}


def names(aws: Cloud, *filters: dict, **more: Any) -> list[str]:
    expression = {"Filters": list(filters)} if filters else {}
    expression |= more.pop("expression", {})
    answer = aws.sm.search(Resource="TrainingJob", SearchExpression=expression, **more) if (
        expression
    ) else aws.sm.search(Resource="TrainingJob", **more)  # fmt: skip
    return [result["TrainingJob"]["TrainingJobName"] for result in answer["Results"]]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([one("TrainingJobName", "fast")], ["fast"]),
        ([one("TrainingJobName", "fast", "NotEquals")], ["slow"]),
        ([one("TrainingJobName", "AS", "Contains")], ["fast"]),
        ([one("TrainingJobName", "x, slow", "In")], ["slow"]),
        ([one("HyperParameters.rate", "0.10")], ["slow"]),
        ([one("HyperParameters.rate", "0.2", "GreaterThan")], ["fast"]),
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
    found = [one(f"{inside}.ChannelName", "train"), one(f"{inside}.DataSource.S3DataSource.S3Uri", "/a/", "Contains")]  # fmt: skip  # noqa: E501
    nested = {"NestedFilters": [{"NestedPropertyName": inside, "Filters": found}]}
    assert names(aws, expression=nested) == ["slow"]


def test_order_and_pages(aws: Cloud) -> None:
    assert names(aws) == ["fast", "slow"]  # the newest first
    assert names(aws, SortBy="Metrics.loss", SortOrder="Ascending") == ["slow", "fast"]
    first = aws.sm.search(Resource="TrainingJob", MaxResults=1)
    assert first["TotalHits"] == {"Value": 2, "Relation": "EqualTo"}
    rest = aws.sm.search(Resource="TrainingJob", NextToken=first["NextToken"])
    assert [r["TrainingJob"]["TrainingJobName"] for r in rest["Results"]] == ["slow"]


def test_pipelines_executions_and_packages(aws: Cloud) -> None:
    def found(resource: str, *filters: dict) -> list[dict]:
        answer = aws.sm.search(Resource=resource, SearchExpression={"Filters": list(filters)})
        return [result[resource] for result in answer["Results"]]

    [pipeline] = found("Pipeline", one("PipelineName", "first"))
    [execution] = found(
        "PipelineExecution",
        one("PipelineArn", pipeline["PipelineArn"]),
        one("PipelineExecutionStatus", "Failed"),
    )
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


@given(st.lists(st.integers(-50, 50), max_size=8), st.integers(-50, 50))
def test_each_is_on_one_side_of_a_value(values: list[int], limit: int) -> None:
    jobs = {f"j{i}": {"x": str(value)} for i, value in enumerate(values)}
    no_executions: Any = None  # jobs are looked for

    def ask(operation: str, request: dict) -> dict:
        if operation == "ListTrainingJobs":
            return {"TrainingJobSummaries": [{"TrainingJobName": name} for name in jobs]}
        if operation == "ListTags":
            return {"Tags": []}
        name = request["TrainingJobName"]
        return {"TrainingJobArn": name, "HyperParameters": jobs[name]}

    def hits(operator: str) -> int:
        expression = {"Filters": [one("HyperParameters.x", str(limit), operator)]}
        asked = {"Resource": "TrainingJob", "SearchExpression": expression}
        answer = search(ask, no_executions, asked)
        return answer["TotalHits"]["Value"]

    assert hits("LessThan") == sum(value < limit for value in values)
    assert hits("LessThan") + hits("GreaterThanOrEqualTo") == len(values)
    assert hits("Equals") + hits("NotEquals") == len(values)
