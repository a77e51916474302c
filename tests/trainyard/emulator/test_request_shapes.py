"""Limits of requests, in SageMaker's words."""

import pytest

from trainyard.emulator.request_scope import ApiError
from trainyard.emulator.request_shapes import check_request_shape


def refusal(operation: str, **request: object) -> str:
    with pytest.raises(ApiError) as caught:
        check_request_shape(operation, request)
    return caught.value.message


def test_every_limit_that_is_broken_is_told():
    said = refusal("DescribeModel", ModelName="_" * 64)
    assert said.startswith("2 validation errors detected: Value '____")
    assert "at 'modelName' failed to satisfy constraint: Member must have length less" in said
    assert "; Value '____" in said


def test_what_is_missing_has_its_path():
    said = refusal("CreateModel", ModelName="m", VpcConfig={"Subnets": ["subnet-1"]})
    assert "Value null at 'vpcConfig.securityGroupIds' failed to satisfy constraint" in said


def test_a_value_of_another_type_and_a_member_that_is_not_there():
    assert "Invalid type for parameter MaxResults" in refusal("ListModels", MaxResults="many")
    assert "Unknown parameter" in refusal("ListModels", Colour="red")


def test_what_is_within_the_limits_passes():
    check_request_shape("DescribeModel", {"ModelName": "m" * 63})
    arn = "arn:aws:sagemaker:us-east-1:123456789012:model/m"
    check_request_shape("AddTags", {"ResourceArn": arn, "Tags": [{"Key": "é 1", "Value": ""}]})
