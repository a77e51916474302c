"""The check of the emulator's answers finds what it must find."""

import copy
from typing import Any

import pytest
from botocore.loaders import Loader
from botocore.model import ServiceModel

from tests.answer_shapes import violations

SHAPE = ServiceModel(Loader().load_service_model("sagemaker", "service-2"), "sagemaker")
ANSWER = {
    "ModelPackageGroupName": "g",
    "ModelPackageGroupArn": "arn:aws:sagemaker:us-east-1:123456789012:model-package-group/g",
    "CreationTime": 1.5,
    "CreatedBy": {},
    "ModelPackageGroupStatus": "Completed",
}
"""DescribeModelPackageGroup."""


def broken(**changes: Any) -> list[str]:
    answer = {k: v for k, v in (copy.deepcopy(ANSWER) | changes).items() if v is not ...}
    return list(violations(SHAPE.shape_for("DescribeModelPackageGroupOutput"), answer))


@pytest.mark.parametrize(
    ("member", "value", "said"),
    [
        ("CreationTime", ..., 'Missing required parameter in input: "CreationTime"'),
        ("ModelPackageGroupStatus", "Done", 'Unknown parameter in ModelPackageGroupStatus: "Done"'),
        ("ModelPackageGroupName", 7, "Invalid type for parameter ModelPackageGroupName"),
        ("CreationTime", None, 'Missing required parameter in input: "CreationTime"'),
        ("CreationTime", "yesterday, or so", "CreationTime"),
        ("Colour", "red", 'Unknown parameter in input: "Colour"'),
    ],
)
def test_what_breaks_the_shape_is_named(member: str, value: Any, said: str):
    assert broken() == []
    [found] = broken(**{member: value})
    assert said in found and found.startswith("DescribeModelPackageGroupOutput: ")
