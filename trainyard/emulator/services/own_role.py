"""The role of the emulator's user: as in Studio, so that ``get_execution_role()`` has an answer.

A user of the emulator's own keys is a session of this role. moto's IAM gets it at the first request
that asks for it by name, or for all roles.
"""

import json
import re

from trainyard.emulator.api import ACCOUNT

NAME = "AmazonSageMaker-ExecutionRole"
ARN = f"arn:aws:iam::{ACCOUNT}:role/{NAME}"
_NAMED = re.compile(rf"{NAME}(&|$)|Action=(ListRoles|GetAccountAuth)".encode())
TRUST = {
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "Principal": {"Service": "sagemaker.amazonaws.com"},
            "Action": "sts:AssumeRole",
        }
    ],
}
"""Trust policy: only SageMaker may assume it, as with any role for its jobs."""


def applies(body: bytes) -> bool:
    """Return whether the answer to a request with that body depends on the role."""
    return bool(_NAMED.search(body))


def load() -> None:
    """Add the role to IAM, unless it is there."""
    from moto.iam.models import iam_backends  # 0.3 s: see managed_policies

    backend = iam_backends[ACCOUNT]["aws"]
    if not any(role.name == NAME for role in backend.roles.values()):
        description = "Who you are in the embedded AWS"
        backend.create_role(NAME, json.dumps(TRUST), "/", None, description, [], "3600")
