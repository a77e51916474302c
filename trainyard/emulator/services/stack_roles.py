"""Roles of a CloudFormation stack that was updated: moto keeps their old policies and trust.

By these, roles are held to IAM (trainyard.emulator.authorization), so they become the template's.
"""

import json
from collections.abc import Mapping
from typing import Any

from trainyard.emulator.request_scope import account, region


def applies(body: bytes) -> bool:
    """Return whether a request with that body updates a stack, or may do so by a change set."""
    return b"Action=UpdateStack&" in body or b"Action=ExecuteChangeSet&" in body


def settle(form: Mapping[str, str]) -> None:
    """Give the roles of a request's stack, in this thread's region, what its template says now."""
    from moto.cloudformation.models import cloudformation_backends
    from moto.cloudformation.parsing import clean_json

    backend = cloudformation_backends[account()][region()]
    # A change set that is named by its ARN needs no stack's name.
    stack = form.get("StackName") or backend.change_sets[form["ChangeSetName"]].stack_name
    resources = backend.get_stack(stack).resource_map
    for name, document in resources._resource_json_map.items():
        if document["Type"] == "AWS::IAM::Role":
            role: Any = resources[name]
            properties = clean_json(document["Properties"], resources)
            role.assume_role_policy_document = json.dumps(properties["AssumeRolePolicyDocument"])
            role.permissions_boundary_arn = properties.get("PermissionsBoundary") or None
            role.policies = {
                policy["PolicyName"]: json.dumps(policy["PolicyDocument"])
                for policy in properties.get("Policies", ())
            }
