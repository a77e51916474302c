"""The VPC endpoints of a pipeline, by the services that its derived policies name."""

from dataclasses import replace

import pytest

from tests.conftest import call_module
from tests.trainyard.permissions.conftest import RECIPES
from trainyard.common.errors import DefinitionError
from trainyard.permissions.policy_answer import ENDPOINTS, iter_endpoints
from trainyard.permissions.role_template import derive_policy, list_roles

pytestmark = pytest.mark.long
NOT_CALLED = {
    "ec2": "SageMaker attaches a job's interfaces",
    "ecr": "SageMaker pulls a job's image",
    "elasticfilesystem": "SageMaker mounts a file system, which has an address in the VPC",
    "fsx": "SageMaker mounts a file system, which has an interface in the VPC",
    "iam": "a role is passed within another request",
    "kms": "S3 and SageMaker call it for whom they serve",
    "logs": "SageMaker writes a job's logs",
    "sts": "CodeArtifact asks for its token",
}
"""Service of an action → who calls it in place of the role's holder."""
S3 = "com.amazonaws.us-east-1.s3"


def test_every_service_has_endpoints_or_a_reason(subject):
    known = ENDPOINTS.keys() | NOT_CALLED.keys()
    used = {
        action.partition(":")[0]
        for name in (*RECIPES, "corners", "mounts")
        for role in list_roles(subject(name))
        for statement in derive_policy(subject(name), role.name)["Statement"]
        for action in statement["Action"]
    }
    assert used == known, "a service without an answer, or an answer that nothing needs"


def test_jobs_in_a_vpc_need_what_their_containers_call(subject):
    assert dict(iter_endpoints(subject("prod")))["job"] == [S3]
    assert dict(iter_endpoints(subject("corners")))["job"] == [
        "aws.sagemaker.us-east-1.experiments",
        "com.amazonaws.us-east-1.codeartifact.api",
        "com.amazonaws.us-east-1.codeartifact.repositories",
        S3,
    ]


def test_who_upserts_from_within_a_vpc_needs_the_api_too(subject):
    found = dict(iter_endpoints(subject("laptop")))  # its jobs have no VPC
    api, sts = "com.amazonaws.us-east-1.sagemaker.api", "com.amazonaws.us-east-1.sts"
    assert found == {"plan": [S3, api, sts], "ci": [S3, api, sts]}


def test_names_of_another_partition_are_not_made_up(subject):
    china = replace(subject("prod"), role="arn:aws-cn:iam::111122223333:role/x")
    with pytest.raises(DefinitionError, match="in partition aws-cn are not known here"):
        list(iter_endpoints(china))


def test_they_are_printed_a_line_each():
    done = call_module("pipelines.permissions", "--recipe", "recipes/prod.yaml", "--endpoints")
    assert done.returncode == 0, done.stderr
    assert f"job  {S3}" in done.stdout.splitlines()
