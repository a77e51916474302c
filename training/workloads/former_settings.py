"""Settings that left: what was written with them is read where they had no effect; no torch."""

from collections.abc import Mapping
from typing import Any

FORMER = {
    "momentum": None,
    "expert_parallel": "1",
    "experts": "0",
    "active_experts": None,
    "balance_rate": None,
}
"""Setting → the value with which it had no effect; None: any, where the others have none."""


def without(given: Any) -> Any:
    """The input of a configuration without former settings that had no effect.

    As recipes, records, checkpoints and models of the version before have them. One with another
    value stays, and is refused by its name. What is not a mapping is returned as it is.
    """
    if not isinstance(given, Mapping):
        return given
    return {n: v for n, v in given.items() if n not in FORMER or FORMER[n] not in (None, str(v))}
