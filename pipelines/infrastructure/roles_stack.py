"""Create or update the roles of a recipe's pipeline, as a CloudFormation stack."""

from typing import Any

from botocore.exceptions import ClientError

from trainyard.aws_clients import create_client, service_errors
from trainyard.permissions.pipeline_subject import Subject
from trainyard.permissions.role_template import (
    build_template,
    derive_policy,
    dump_yaml,
    list_gaps,
    list_roles,
)

NOTHING_TO_DO = "No updates are to be performed"


def deploy_roles_stack(subject: Subject) -> str:
    """Deploy the template of all roles as the stack ``<pipeline>-roles``; return the outcome, as
    text.

    Raises:
        DefinitionError: the template cannot be derived.
        ServiceError: AWS refused the stack.
    """
    name = f"{subject.name}-roles"
    request = {
        "StackName": name,
        "TemplateBody": dump_yaml(build_roles_template(subject)),
        "Capabilities": ["CAPABILITY_NAMED_IAM"],
    }
    with service_errors(f"stack {name}"):
        outcome = _create_or_update_stack(
            create_client("cloudformation", region=subject.region), request
        )
    return f"stack {name}: {outcome}"


def build_roles_template(subject: Subject, *, allow_shared: bool = True) -> dict[str, Any]:
    """Return the template of all roles.

    ``allow_shared``: whether pipeline and jobs may share a role, which then has the rights of both.

    Raises:
        DefinitionError: the template cannot be derived.
    """
    policies = {
        role_entry.name: derive_policy(subject, role_entry.name)
        for role_entry in list_roles(subject)
    }
    gaps = {role: role_gaps for role in policies if (role_gaps := list_gaps(subject, role))}
    return build_template(subject, policies, gaps, allow_shared=allow_shared)


def _create_or_update_stack(cloudformation: Any, request: dict[str, Any]) -> str:
    """Create or update the stack and wait for it; return "created", "updated" or "unchanged"."""
    try:
        cloudformation.create_stack(**request)
        outcome = "created"
    except ClientError as error:
        if error.response["Error"]["Code"] != "AlreadyExistsException":
            raise
        try:
            cloudformation.update_stack(**request)
            outcome = "updated"
        except ClientError as update_error:
            if NOTHING_TO_DO not in str(update_error):
                raise
            return "unchanged"
    waiter = cloudformation.get_waiter(f"stack_{outcome.removesuffix('d')}_complete")
    waiter.wait(StackName=request["StackName"], WaiterConfig={"Delay": 2})
    return outcome
