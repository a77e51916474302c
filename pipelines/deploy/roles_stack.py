"""The roles of a recipe's pipeline as a stack of CloudFormation: created, or brought up to date."""

from typing import Any

from botocore.exceptions import ClientError

from trainyard.aws_clients import client, service_errors
from trainyard.permissions.derived_roles import derive, missing
from trainyard.permissions.pipeline_subject import Subject
from trainyard.permissions.role_table import roles
from trainyard.permissions.role_template import dump, template

NOTHING_TO_DO = "No updates are to be performed"


def deploy(subject: Subject) -> str:
    """Deploy the template of all roles as the stack ``<pipeline>-roles``; return what was done.

    Raises:
        DefinitionError: the template cannot be derived.
        ServiceError: AWS refuses it.
    """
    name = f"{subject.name}-roles"
    asked = {
        "StackName": name,
        "TemplateBody": dump(roles_template(subject)),
        "Capabilities": ["CAPABILITY_NAMED_IAM"],
    }
    with service_errors(f"stack {name}"):
        done = _put(client("cloudformation", region=subject.region), asked)
    return f"stack {name}: {done}"


def roles_template(subject: Subject, *, shared: bool = True) -> dict[str, Any]:
    """Return the template of all roles.

    ``shared``: whether pipeline and jobs may share a role, which may then do what both need.

    Raises:
        DefinitionError: the template cannot be derived.
    """
    policies = {each.name: derive(subject, each.name) for each in roles(subject)}
    gaps = {role: found for role in policies if (found := missing(subject, role))}
    return template(subject, policies, gaps, shared=shared)


def _put(cloudformation: Any, asked: dict[str, Any]) -> str:
    try:
        cloudformation.create_stack(**asked)
        done = "created"
    except ClientError as error:
        if error.response["Error"]["Code"] != "AlreadyExistsException":
            raise
        try:
            cloudformation.update_stack(**asked)
            done = "updated"
        except ClientError as refused:
            if NOTHING_TO_DO not in str(refused):
                raise
            return "unchanged"
    waiter = cloudformation.get_waiter(f"stack_{done.removesuffix('d')}_complete")
    waiter.wait(StackName=asked["StackName"], WaiterConfig={"Delay": 2})
    return done
