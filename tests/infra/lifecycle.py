"""Evaluate infra/storage.yaml's lifecycle rules on an object, as S3 does."""

from functools import cache
from pathlib import Path
from typing import Any

from trainyard.permissions.role_template import parse_template

STORAGE = Path(__file__).parent.parent.parent / "infra/storage.yaml"
EXPIRES = ("ExpirationInDays", "ExpirationDate")


@cache
def rules(root: str) -> list[dict[str, Any]]:
    """Return the bucket's enabled rules with their prefixes for a pipeline below ``root``."""
    bucket = parse_template(STORAGE.read_text(encoding="utf-8"), STORAGE.name)["Resources"][
        "Bucket"
    ]
    found = bucket["Properties"]["LifecycleConfiguration"]["Rules"]
    return [rule | {"Prefix": _prefix(rule, root)} for rule in found if rule["Status"] == "Enabled"]


def _prefix(rule: dict[str, Any], root: str) -> str:
    """Return the rule's prefix; our rules have no other filter, which would need another
    evaluation.
    """
    assert not {"Filter", "TagFilters", "ObjectSizeGreaterThan", "ObjectSizeLessThan"} & set(rule)
    prefix = rule.get("Prefix", "")
    return prefix["Fn::Sub"].replace("${Root}", root) if isinstance(prefix, dict) else prefix


def expires(key: str, root: str) -> bool:
    """Return whether the current version of the object will be deleted some day."""
    matching = [rule for rule in rules(root) if key.startswith(rule["Prefix"])]
    return any(name in rule for rule in matching for name in EXPIRES)


def old_version_lives(key: str, root: str) -> bool:
    """Return whether an overwritten version can be restored for longer than some days."""
    limits = [
        rule["NoncurrentVersionExpiration"]["NoncurrentDays"]
        for rule in rules(root)
        if key.startswith(rule["Prefix"]) and "NoncurrentVersionExpiration" in rule
    ]
    return all(limit == {"Ref": "OldVersionsRetentionDays"} for limit in limits)
