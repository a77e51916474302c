"""What IAM has from the start: the role of the emulator's own keys, and AWS's own policies."""

from collections.abc import Callable

import pytest

from trainyard.emulator.iam import access_keys

pytestmark = pytest.mark.long


def test_a_person_is_a_session_of_a_role_that_iam_knows(client: Callable):
    """As in Studio: get_execution_role() works."""
    arn = client("sts").get_caller_identity()["Arn"]
    kind, name, _ = arn.rpartition(":")[2].split("/")
    assert kind == "assumed-role"
    iam = client("iam")
    assert iam.get_role(RoleName=name)["Role"]["Arn"] == access_keys.make_administrator_arn()
    assert [role["RoleName"] for role in iam.list_roles()["Roles"]] == [name]


def test_awss_own_policies_are_there_to_be_attached(client: Callable):
    iam = client("iam")
    listed = iam.get_paginator("list_policies").paginate(Scope="AWS").build_full_result()
    assert len(listed["Policies"]) > 1000
    iam.create_role(RoleName="theirs", AssumeRolePolicyDocument="{}")
    missing = "arn:aws:iam::aws:policy/AmazonSageMakerNoAccess"
    with pytest.raises(iam.exceptions.NoSuchEntityException):
        iam.attach_role_policy(RoleName="theirs", PolicyArn=missing)
