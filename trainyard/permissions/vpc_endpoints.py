"""List the VPC endpoints that a pipeline needs where its network has no other way out.

They follow from the services of the derived policies' actions. SageMaker itself pulls a job's
image, writes its logs, attaches its volumes and interfaces; through the VPC go its containers'
calls (SageMaker guide, "Give SageMaker AI Training Jobs Access to Resources in Your Amazon VPC").
"""

from collections.abc import Iterator
from typing import Any

from trainyard.common.errors import DefinitionError
from trainyard.permissions.derived_roles import derive
from trainyard.permissions.pipeline_subject import Subject
from trainyard.permissions.role_table import Role, roles

ENDPOINTS = {
    "cloudwatch": ("com.amazonaws.{}.monitoring",),
    "s3": ("com.amazonaws.{}.s3",),
    "sagemaker": ("com.amazonaws.{}.sagemaker.api",),
    "codeartifact": (
        "com.amazonaws.{}.codeartifact.api",
        "com.amazonaws.{}.codeartifact.repositories",
    ),
    "sagemaker-mlflow": ("aws.sagemaker.{}.experiments",),
    "sns": ("com.amazonaws.{}.sns",),
}
"""Service of an action → names of its endpoints, for a region. S3's is a gateway, the others are
interfaces."""
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
IDENTITY = "com.amazonaws.{}.sts"
"""For GetCallerIdentity, which needs no permission: the verbs ask whose credentials they have."""


def endpoints(subject: Subject) -> Iterator[tuple[str, list[str]]]:
    """Yield (role, the endpoints that its holder needs): the jobs, where they have a VPC, and who
    plans, upserts and starts, where that is done from within one.

    Raises:
        DefinitionError: the partition's names are not known here, or see ``derive``.
    """
    if subject.partition not in ("aws", "aws-us-gov"):
        raise DefinitionError(
            f"--endpoints: the names in partition {subject.partition} are not known here: aws ec2 "
            "describe-vpc-endpoint-services lists them"
        )
    for role in roles(subject):
        policy = derive(subject, role.name)
        services = {action.partition(":")[0] for s in policy["Statement"] for action in s["Action"]}
        if _calls_itself(role, subject, policy):
            names = [IDENTITY]
        elif role.name == "job" and "ec2" in services:
            services.discard("cloudwatch")  # SageMaker writes a job's metrics
            names = []
        else:
            continue
        names += [name for service in services & ENDPOINTS.keys() for name in ENDPOINTS[service]]
        yield role.name, sorted(name.format(subject.region) for name in names)


def _calls_itself(role: Role, subject: Subject, policy: dict[str, Any]) -> bool:
    """Return whether people or CI hold it: its policy is attached to their roles."""
    return role.resource(subject, policy)["Type"] == "AWS::IAM::ManagedPolicy"
