"""IAM has AWS's own policies."""

from collections.abc import Callable

import pytest

pytestmark = pytest.mark.long


def test_they_are_there_to_be_attached(client: Callable) -> None:
    iam, name = client("iam"), "arn:aws:iam::aws:policy/AmazonSageMakerFullAccess"
    iam.create_role(RoleName="theirs", AssumeRolePolicyDocument="{}")
    iam.attach_role_policy(RoleName="theirs", PolicyArn=name)
    [attached] = iam.list_attached_role_policies(RoleName="theirs")["AttachedPolicies"]
    assert attached["PolicyArn"] == name
    missing = "arn:aws:iam::aws:policy/AmazonSageMakerNoAccess"
    with pytest.raises(iam.exceptions.NoSuchEntityException):
        iam.attach_role_policy(RoleName="theirs", PolicyArn=missing)
    listed = iam.get_paginator("list_policies").paginate(Scope="AWS").build_full_result()
    assert len(listed["Policies"]) > 1000
