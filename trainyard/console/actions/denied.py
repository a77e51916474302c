"""What a refusal for want of a permission lacks, as a statement to add to a policy."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from trainyard.console.actions.action import Call
from trainyard.permissions.statements import Statement, policy

_DENIED = re.compile(r"AccessDenied|UnauthorizedOperation|is not authorized to perform")
_WHAT = re.compile(
    r"is not authorized to perform: (?P<action>[\w-]+:\w+)"
    r"(?: on resource: \"?(?P<resource>arn:[^\s\"]+|\*))?"
)
_EXPLICIT = re.compile(r"with an explicit deny(?: in an? (?P<where>[\w -]+?policy))?")


@dataclass(frozen=True, slots=True)
class Denied:
    """What is missing."""

    policy: dict
    """A policy document with the statement."""

    explicit: str
    """Which kind of policy denies it expressly, so that no statement helps; empty otherwise."""


def missing(said: str, calls: Sequence[Call]) -> Denied | None:
    """The statement that AWS's message asks for, or else what the calls need; None for a refusal
    that is not for want of a permission."""
    if not _DENIED.search(said):
        return None
    found = _WHAT.search(said)
    explicit = _EXPLICIT.search(said)
    if found:
        statement = Statement(
            sid="Console", actions=(found["action"],), resources=(found["resource"] or "*",)
        )
        needed = [statement]
    else:
        needed = [
            Statement(
                sid=f"Console{call.operation}",
                actions=(f"sagemaker:{call.operation}",),
                resources=call.resources,
            )
            for call in calls
        ]
    where = (explicit["where"] or "policy") if explicit else ""
    return Denied(policy(needed), where)
