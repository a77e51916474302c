"""AWS's own IAM policies, of which moto has a copy and keeps it out of its IAM unless it is told.

They take 0.2 s, so they come in with the first request that names one of them, or lists policies.
"""

import json
import re

from trainyard.emulator.api import ACCOUNT

_NAMED = re.compile(rb"iam(::|%3A%3A)aws(:|%3A)policy|Action=(ListPolicies|GetAccountAuth)")


def wanted(body: bytes) -> bool:
    """Whether a request with that body shows whether AWS's policies are there."""
    return bool(_NAMED.search(body))


def load() -> None:
    """Put them into IAM, if they are not there."""
    # moto's IAM takes 0.3 s to import, which an emulator that nobody asks for it need not take
    from moto.iam.aws_managed_policies import aws_managed_policies_data
    from moto.iam.models import AWSManagedPolicy, iam_backends

    backend = iam_backends[ACCOUNT]["aws"]
    if any(isinstance(policy, AWSManagedPolicy) for policy in backend.managed_policies.values()):
        return
    for name, data in json.loads(aws_managed_policies_data).items():
        policy = AWSManagedPolicy.from_data(name, ACCOUNT, backend.region_name, data)
        backend.managed_policies[policy.arn] = policy
