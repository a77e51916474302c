"""The model registry through boto3: nothing is lost by updates and restarts."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from tests.trainyard.emulator.standin import NoPipelines, make_client
from trainyard.emulator.request_scope import ApiError
from trainyard.emulator.server import serve_emulator

SPECIFICATION = {
    "Containers": [{"Image": "image:1", "ModelDataUrl": "s3://bucket/model.tar.gz"}],
    "SupportedContentTypes": ["application/json"],
    "SupportedResponseMIMETypes": ["application/json"],
}
STATISTICS = {"ContentType": "application/json", "S3Uri": "s3://bucket/evaluation.json"}
PREFIX = "arn:aws:sagemaker:us-east-1:123456789012:model-package/"
GROUPS = PREFIX.replace("package/", "package-group/")
GIVEN = {
    "ModelPackageDescription": "from a test",
    "InferenceSpecification": SPECIFICATION,
    "ModelMetrics": {"ModelQuality": {"Statistics": STATISTICS}},
    "ModelApprovalStatus": "PendingManualApproval",
    "CustomerMetadataProperties": {"commit": "abc", "fingerprint": "def"},
    "MetadataProperties": {"CommitId": "abc"},
}


@pytest.fixture(scope="module")
def sagemaker(client):
    return client("sagemaker")


@pytest.fixture
def group(sagemaker, request) -> str:
    name = request.node.name.replace("_", "-")[:60].strip("-")
    sagemaker.create_model_package_group(ModelPackageGroupName=name, Tags=[tag("a", "1")])
    return name


@pytest.fixture(scope="module")
def create(sagemaker) -> Callable[..., str]:
    """Create a package of the group; return its ARN."""
    return lambda group, **given: sagemaker.create_model_package(
        ModelPackageGroupName=group, **given
    )["ModelPackageArn"]


def tag(key: str, value: str) -> dict[str, str]:
    return {"Key": key, "Value": value}


def refusal(call, **arguments) -> str:
    with pytest.raises(ClientError) as failure:
        call(**arguments)
    assert failure.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
    return str(failure.value)


def test_a_package_is_described_as_it_was_created_and_an_update_changes_what_it_names(
    sagemaker, group, create
):
    before = time.time()
    arn = create(group, **GIVEN)
    assert arn == f"{PREFIX}{group}/1"
    package = sagemaker.describe_model_package(ModelPackageName=arn)
    assert {key: package[key] for key in GIVEN} == GIVEN
    assert (package["ModelPackageVersion"], package["ModelPackageStatus"]) == (1, "Completed")
    assert before <= package["CreationTime"].timestamp() <= time.time()

    sagemaker.update_model_package(
        ModelPackageArn=arn,
        ModelApprovalStatus="Approved",
        ApprovalDescription="good",
        CustomerMetadataProperties={"by": "me"},
        CustomerMetadataPropertiesToRemove=["fingerprint"],
    )
    package = sagemaker.describe_model_package(ModelPackageName=arn)
    left = {"commit": "abc", "by": "me"}
    changed = {"ModelApprovalStatus": "Approved", "CustomerMetadataProperties": left}
    assert {key: package[key] for key in GIVEN} == GIVEN | changed
    assert package["ApprovalDescription"] == "good"
    assert package["LastModifiedTime"] >= package["CreationTime"]


def test_lists_filter_sort_and_page(sagemaker, group, create):
    for status in ("Approved", "Rejected", "Approved"):
        create(group, ModelApprovalStatus=status)
    sagemaker.create_model_package_group(ModelPackageGroupName=f"{group}-2")
    create(f"{group}-2")

    def versions(**arguments) -> list[int]:
        pages = sagemaker.get_paginator("list_model_packages").paginate(
            ModelPackageGroupName=group, PaginationConfig={"PageSize": 2}, **arguments
        )
        return [p["ModelPackageVersion"] for page in pages for p in page["ModelPackageSummaryList"]]

    assert versions() == [1, 2, 3]
    assert versions(SortBy="CreationTime", SortOrder="Descending") == [3, 2, 1]
    assert versions(ModelApprovalStatus="Approved", SortOrder="Descending") == [3, 1]
    groups = sagemaker.list_model_package_groups(NameContains=group)
    assert len(groups["ModelPackageGroupSummaryList"]) == 2


def test_deleting_frees_a_group_and_never_a_version_number(sagemaker, group, create):
    named = {"ModelPackageGroupName": group}
    first = create(group)
    refused = refusal(sagemaker.delete_model_package_group, **named)
    assert "contains model packages" in refused
    sagemaker.delete_model_package(ModelPackageName=first)
    assert "does not exist" in refusal(sagemaker.describe_model_package, ModelPackageName=first)
    second = create(group)
    assert second.endswith("/2")
    sagemaker.delete_model_package(ModelPackageName=second)
    sagemaker.delete_model_package_group(**named)
    assert "does not exist" in refusal(sagemaker.describe_model_package_group, **named)


def test_refuses_what_aws_refuses(sagemaker, endpoint, group):
    again = refusal(sagemaker.create_model_package_group, ModelPackageGroupName=group)
    assert "ValidationException" in again and "Model Package Group already exists" in again
    missing = refusal(sagemaker.create_model_package, ModelPackageGroupName="nobody")
    assert "ValidationException" in missing and "does not exist" in missing
    wrong = {"ModelPackageGroupName": group, "ModelApprovalStatus": "Aproved"}
    assert "Member must satisfy enum value set: [Approved" in refusal(
        sagemaker.create_model_package, **wrong
    )
    wrong = {"ModelPackageGroupName": group, "CustomerMetadataProperties": {"a": 1}}
    with pytest.raises(ApiError, match="CustomerMetadataProperties.a.*valid types"):
        endpoint.app.forward("CreateModelPackage", wrong)  # by a client that checks no types


def test_arns_are_in_lower_case_and_found_in_any(sagemaker, create):
    made = sagemaker.create_model_package_group(ModelPackageGroupName="Churn-Models")
    assert made["ModelPackageGroupArn"].endswith(":model-package-group/churn-models")
    why = refusal(sagemaker.create_model_package_group, ModelPackageGroupName="churn-MODELS")
    assert "already exists" in why
    arn = create("Churn-Models", **GIVEN)
    assert arn == f"{PREFIX}churn-models/1"
    found = sagemaker.describe_model_package(ModelPackageName=f"{PREFIX}Churn-Models/1")
    assert found["ModelPackageGroupName"] == "Churn-Models"
    group = {"ModelPackageGroupName": made["ModelPackageGroupArn"]}
    [listed] = sagemaker.list_model_packages(**group)["ModelPackageSummaryList"]
    assert listed["ModelPackageArn"] == arn


def test_tags(sagemaker, group):
    arn = GROUPS + group
    sagemaker.add_tags(ResourceArn=arn, Tags=[tag("a", "2"), tag("b", "3")])
    assert sagemaker.list_tags(ResourceArn=arn)["Tags"] == [tag("a", "2"), tag("b", "3")]
    sagemaker.delete_tags(ResourceArn=arn, TagKeys=["a"])
    assert sagemaker.list_tags(ResourceArn=arn)["Tags"] == [tag("b", "3")]


def test_a_restart_keeps_everything(tmp_path: Path):
    found = []
    for number in (1, 2):
        with serve_emulator(tmp_path, make_sagemaker=NoPipelines) as endpoint:
            client = make_client(endpoint, "sagemaker")
            if number == 1:
                client.create_model_package_group(ModelPackageGroupName="g")
                client.create_model_package(ModelPackageGroupName="g", **GIVEN)
            found.append(client.describe_model_package(ModelPackageName=f"{PREFIX}g/1"))
            del found[-1]["ResponseMetadata"]
            arn = client.create_model_package(ModelPackageGroupName="g")["ModelPackageArn"]
            assert arn.endswith(f"g/{number + 1}")
    assert found[0] == found[1]


def test_a_group_is_found_by_its_arn_and_none_of_another_account_or_region(
    sagemaker, group, create
):
    arn = GROUPS + group
    made = create(arn)
    assert made == f"{PREFIX}{group}/1"
    found = sagemaker.list_model_packages(ModelPackageGroupName=arn)["ModelPackageSummaryList"]
    assert [one["ModelPackageArn"] for one in found] == [made]
    for other in (arn.replace("123456789012", "1" * 12), arn.replace("us-east-1", "eu-west-1")):
        for call in (sagemaker.create_model_package, sagemaker.list_model_packages):
            assert f"{other} is in an" in refusal(call, ModelPackageGroupName=other)
