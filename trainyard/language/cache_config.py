"""Determine whether SageMaker answers a step from the step cache, and for how long.

Attributes and rules are those of the developer guide, "Caching pipeline steps" and "Default
cache key attributes by pipeline step type".
"""

import re
from collections.abc import Mapping
from typing import Any

from trainyard.language.step_types import step_type

_DURATION = re.compile(
    r"P?(?:(\d+)y)?(?:(\d+)m)?(?:(\d+)w)?(?:(\d+)d)?(?:T(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?)?",
    re.IGNORECASE,
)
_SECONDS = (365 * 86400, 30 * 86400, 7 * 86400, 86400, 3600, 60, 1)


def key_arguments(document: dict[str, Any], arguments: dict[str, Any]) -> dict[str, Any] | None:
    """Return the part of ``arguments`` that forms the step's key; None when the step is not cached.

    ``document`` is the step in the definition; ``arguments`` are its Arguments, resolved or not.
    """
    config = document.get("CacheConfig") or {}
    names = step_type(document.get("Type")).cache_key
    if not config.get("Enabled") or not names:
        return None
    return {name: _get_member(arguments, name) for name in names}


def _get_member(arguments: Any, path: str) -> Any:
    """Return the member at ``A.B``; None if missing, or if only a run knows its container."""
    for name in path.split("."):
        arguments = arguments.get(name) if isinstance(arguments, Mapping) else None
    return arguments


def duration(text: Any) -> float:
    """Return the seconds of an ISO 8601 duration, also in AWS's spelling without P: ``30d``,
    ``T16m``.

    Raises:
        ValueError: it is not a duration.
    """
    match = _DURATION.fullmatch(text) if isinstance(text, str) else None
    if not match or not any(match.groups()):
        message = f"ExpireAfter {text!r}: expected an ISO 8601 duration such as P30D or PT1H"
        raise ValueError(message)
    return float(sum(int(n) * s for n, s in zip(match.groups(), _SECONDS, strict=True) if n))
