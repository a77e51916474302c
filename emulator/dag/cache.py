"""Step caching: the signature of a step's run, and earlier runs that may stand in for it.

Attributes and rules are those of the developer guide, "Caching pipeline steps" and "Default
cache key attributes by pipeline step type". One rule is stricter: a hit needs every object that
the earlier run left to be there, unchanged; AWS does not look.
"""

import hashlib
import json
import re
from collections.abc import Iterable
from typing import Any

from emulator.api import ApiError
from emulator.dag.definition import Step
from emulator.jobs.transfers import split_uri
from emulator.objects import ObjectStore

ATTRIBUTES = {
    "Processing": ("AppSpecification", "Environment", "ProcessingInputs"),
    "Training": (
        "AlgorithmSpecification",
        "CheckpointConfig",
        "DebugHookConfig",
        "DebugRuleConfigurations",
        "Environment",
        "HyperParameters",
        "InputDataConfig",
    ),
}
"""Step type -> the Arguments that make its signature. Other types are not cached."""
_DURATION = re.compile(
    r"P?(?:(\d+)y)?(?:(\d+)m)?(?:(\d+)w)?(?:(\d+)d)?(?:T(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?)?",
    re.IGNORECASE,
)
_SECONDS = (365 * 86400, 30 * 86400, 7 * 86400, 86400, 3600, 60, 1)


def signature(step: Step, arguments: dict) -> str | None:
    """A hash over the step's cached attributes, or None when the step has no cache.

    ``arguments`` are resolved. The step's name counts: two equal steps are two steps.
    """
    config = step.document.get("CacheConfig") or {}
    if not config.get("Enabled") or step.type not in ATTRIBUTES:
        return None
    chosen = {name: arguments.get(name) for name in ATTRIBUTES[step.type]}
    text = json.dumps([step.name, step.type, chosen], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def expiry(step: Step) -> float:
    """``ExpireAfter`` in seconds; infinite without one. Raises ``ValidationException``."""
    text = (step.document.get("CacheConfig") or {}).get("ExpireAfter")
    return float("inf") if text is None else duration(text)


def duration(text: Any) -> float:
    """An ISO 8601 duration, also in AWS's spelling without P: ``P30D``, ``30d``, ``T16m``."""
    match = _DURATION.fullmatch(text) if isinstance(text, str) else None
    if not match or not any(match.groups()):
        message = f"ExpireAfter {text!r}: expected an ISO 8601 duration such as P30D or PT1H"
        raise ApiError("ValidationException", message)
    return float(sum(int(n) * s for n, s in zip(match.groups(), _SECONDS, strict=True) if n))


def snapshot(objects: ObjectStore, uris: Iterable[str]) -> dict[str, str]:
    """Every object at or under ``uris`` -> its ETag."""
    found: dict[str, str] = {}
    for uri in uris:
        bucket, prefix = split_uri(uri)
        for info in objects.list(bucket, prefix):
            if info.key == prefix or info.key.startswith(f"{prefix.rstrip('/')}/"):
                found[f"s3://{bucket}/{info.key}"] = info.etag
    return found


def intact(objects: ObjectStore, earlier: dict[str, str]) -> bool:
    """Whether each object of a :func:`snapshot` is still there with the same bytes."""
    for uri, etag in earlier.items():
        bucket, key = split_uri(uri)
        if not objects.exists(bucket, key) or objects.head(bucket, key).etag != etag:
            return False
    return True
