"""The roles of an account's administrator. A user of the emulator's own keys is a session of the
first, as in Studio, so that ``get_execution_role()`` has an answer; the second opens an account.

moto's IAM gets them at the first request that asks for one by name, or for all roles.
"""

import json
import re
from typing import Any

from trainyard.emulator.request_scope import ACCOUNT, account

NAME = "AmazonSageMaker-ExecutionRole"
ENTRY = "OrganizationAccountAccessRole"
"""The role of an account of an organization that the organization's own account may assume: AWS
Organizations creates it in each account. Here, to assume it creates the account."""
_ENTRY = re.compile(rf"arn:[\w-]+:iam::(\d{{12}}):role/{ENTRY}")
_ROLE_REQUEST = re.compile(rf"({NAME}|{ENTRY})(&|$)|Action=(ListRoles|GetAccountAuth)".encode())


def _trust(**principal: str) -> dict[str, Any]:
    allow = {"Effect": "Allow", "Principal": principal, "Action": "sts:AssumeRole"}
    return {"Version": "2012-10-17", "Statement": [allow]}


TRUST = _trust(Service="sagemaker.amazonaws.com")
"""Trust policy of the first: only SageMaker may assume it, as with any role for its jobs."""
ENTRY_TRUST = _trust(AWS=f"arn:aws:iam::{ACCOUNT}:root")


def arn() -> str:
    """Return the ARN of the role of the current account's user."""
    return f"arn:aws:iam::{account()}:role/{NAME}"


def is_administrator(role: str) -> bool:
    """Return whether the role with that ARN is one of these."""
    return role.rpartition("/")[2] == NAME or bool(find_account(role))


def find_account(role: str) -> str:
    """Return the number of the account that the role with that ARN opens; empty for another."""
    match = _ENTRY.fullmatch(role)
    return match[1] if match and match[1] != ACCOUNT else ""


def applies(body: bytes) -> bool:
    """Return whether the answer to a request with that body depends on the roles."""
    return bool(_ROLE_REQUEST.search(body))


def load() -> None:
    """Add the roles to the account's IAM, unless they are there."""
    from moto.iam.models import iam_backends  # 0.3 s: see managed_policies

    backend = iam_backends[account()]["aws"]
    existing_names = {role.name for role in backend.roles.values()}
    roles = {NAME: (TRUST, "Who you are in the embedded AWS")}
    if account() != ACCOUNT:
        roles[ENTRY] = ENTRY_TRUST, f"Administrator, for users of account {ACCOUNT}"
    for name in roles.keys() - existing_names:
        trust, description = roles[name]
        backend.create_role(name, json.dumps(trust), "/", None, description, [], "3600")
