"""AWS's own IAM policies, which moto only adds to its IAM on demand.

Adding takes 0.2 s, so it is done at the first request that names one of them, or lists policies.
"""

import json
import re

from trainyard.emulator.request_scope import account

_POLICY_REQUEST = re.compile(
    rb"iam(::|%3A%3A)aws(:|%3A)policy|Action=(ListPolicies|GetAccountAuth)"
)


def applies(body: bytes) -> bool:
    """Return whether the answer to a request with that body depends on AWS's policies."""
    return bool(_POLICY_REQUEST.search(body))


def load() -> None:
    """Add the policies to IAM, unless they are there."""
    # importing moto's IAM takes 0.3 s, which most emulators can avoid
    from moto.iam.aws_managed_policies import aws_managed_policies_data
    from moto.iam.models import AWSManagedPolicy, iam_backends

    backend = iam_backends[account()]["aws"]
    if any(isinstance(policy, AWSManagedPolicy) for policy in backend.managed_policies.values()):
        return
    for name, data in json.loads(aws_managed_policies_data).items():
        policy = AWSManagedPolicy.from_data(name, account(), backend.region_name, data)
        backend.managed_policies[policy.arn] = policy
