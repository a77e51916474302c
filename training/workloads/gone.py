"""Settings that older versions had and told, and this one has not; no torch."""

from collections.abc import Mapping
from typing import Any

GONE = {
    **{"momentum": None, "expert_parallel": "1"},
    **{"experts": "0", "active_experts": None, "balance_rate": None},
}
"""Setting → the value with which it had no effect; None: any, where the others have none."""


def left(told: Any) -> Any:
    """Settings without those of older versions that had no effect; what is no mapping as it is."""
    if not isinstance(told, Mapping):
        return told
    return {n: v for n, v in told.items() if n not in GONE or GONE[n] not in (None, str(v))}
