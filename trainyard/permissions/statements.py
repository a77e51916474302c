"""IAM statements, which of their wildcards AWS forces, and what covers what."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache

Conditions = Mapping[str, Mapping[str, tuple[str, ...]]]
"""Operator → condition key → the values, as in a policy."""

FORCED = {
    "cloudwatch:PutMetricData": (
        "CloudWatch knows no metric as a resource; the condition cloudwatch:namespace limits it"
    ),
    "ec2:DescribeDhcpOptions": "EC2's Describe actions have no resource types",
    "ec2:DescribeNetworkInterfaces": "EC2's Describe actions have no resource types",
    "ec2:DescribeSecurityGroups": "EC2's Describe actions have no resource types",
    "ec2:DescribeSubnets": "EC2's Describe actions have no resource types",
    "ec2:DescribeVpcs": "EC2's Describe actions have no resource types",
    "ecr:GetAuthorizationToken": (
        "the token is for the whole registry; what may be pulled with it, the repositories say"
    ),
    "fsx:DescribeFileSystems": "FSx lists file systems without a resource type",
}
"""Action → why its resource must be ``*``.

From the Service Authorization Reference (docs.aws.amazon.com/service-authorization), where these
actions name no resource type; the tests compare with that reference's data.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One Allow statement."""

    sid: str
    actions: tuple[str, ...]
    resources: tuple[str, ...]
    conditions: Conditions = field(default_factory=dict)

    def as_json(self) -> dict:
        """As it stands in a policy document."""
        condition = {
            operator: {key: list(values) for key, values in keys.items()}
            for operator, keys in self.conditions.items()
        }
        return {
            "Sid": self.sid,
            "Effect": "Allow",
            "Action": list(self.actions),
            "Resource": list(self.resources),
            **({"Condition": condition} if condition else {}),
        }


@dataclass(frozen=True, slots=True)
class Gap:
    """What a role needs besides, and no definition tells: it names the step, the field, the reason.

    A policy with a gap is to be completed by hand.
    """

    says: str


def policy(statements: Iterable[Statement | Gap]) -> dict:
    """A policy document of those statements that allow something."""
    given = (s for s in statements if isinstance(s, Statement))
    allowing = [s.as_json() for s in given if s.resources]
    return {"Version": "2012-10-17", "Statement": allowing}


def forced_wildcards(document: Mapping) -> dict[str, str]:
    """Action → reason, of every action in the policy whose resource is ``*``.

    Raises:
        KeyError: an action of ours has the resource ``*`` and AWS does not force it: a bug.
    """
    return {
        action: FORCED[action]
        for statement in document["Statement"]
        if "*" in statement["Resource"]
        for action in statement["Action"]
    }


@cache
def _expression(pattern: str) -> re.Pattern[str]:
    """Matches other patterns: a ``*`` in them only by ``*``, a ``?`` by either wildcard."""
    parts = {"*": ".*", "?": "[^*]"}
    return re.compile("".join(parts.get(char, re.escape(char)) for char in pattern), re.DOTALL)


def covers(wide: str, narrow: str) -> bool:
    """Whether all that the IAM pattern ``narrow`` matches, ``wide`` matches too."""
    return _expression(wide).fullmatch(narrow) is not None


def minimal(patterns: Iterable[str]) -> tuple[str, ...]:
    """The patterns, sorted, without those that another one covers; of equals the first stays."""
    kept: list[str] = []
    for pattern in sorted(set(patterns)):
        if not any(covers(other, pattern) for other in kept):
            kept = [other for other in kept if not covers(pattern, other)] + [pattern]
    return tuple(kept)
