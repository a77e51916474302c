"""CloudFormation's resources of roles and policies."""

from typing import Any


def service_role(
    arn_path: str, service: str, sources: list[str], policy: dict[str, Any], description: str
) -> dict[str, Any]:
    """A role that the service assumes for what has one of the ARNs ``sources``, and for that only.

    ``arn_path`` is what its ARN has after ``role/``. Trust is bound as in the developer guide,
    "Cross-service confused deputy prevention", sections Pipelines, Processing and Training.
    """
    folder, _, plain = arn_path.rpartition("/")
    return {
        "Type": "AWS::IAM::Role",
        "Properties": {
            "RoleName": plain,
            **({"Path": f"/{folder}/"} if folder else {}),
            "Description": description,
            "AssumeRolePolicyDocument": {
                "Version": "2012-10-17",
                "Statement": [
                    {
                        "Effect": "Allow",
                        "Principal": {"Service": f"{service}.amazonaws.com"},
                        "Action": "sts:AssumeRole",
                        "Condition": {"ArnLike": {"aws:SourceArn": sources}},
                    }
                ],
            },
            "Policies": [{"PolicyName": "derived", "PolicyDocument": policy}],
        },
    }


def managed_policy(name: str, policy: dict[str, Any], description: str) -> dict[str, Any]:
    """A policy for roles that stand elsewhere."""
    given = {"ManagedPolicyName": name, "Description": description, "PolicyDocument": policy}
    return {"Type": "AWS::IAM::ManagedPolicy", "Properties": given}
