"""Removed settings: files that contain them are still read if they had no effect; no torch."""

from collections.abc import Mapping
from typing import Any

FORMER = {
    "momentum": None,
    "expert_parallel": "1",
    "experts": "0",
    "active_experts": None,
    "balance_rate": None,
}
"""Setting → the value with which it had no effect; None: any value, if the others have no
effect."""


def without(given: Any) -> Any:
    """Return a configuration's input without removed settings that had no effect.

    Recipes, records, checkpoints and models of the previous version may have them. One with another
    value stays, and is then refused as unknown. What is not a mapping is returned as it is.
    """
    if not isinstance(given, Mapping):
        return given
    return {n: v for n, v in given.items() if n not in FORMER or FORMER[n] not in (None, str(v))}
