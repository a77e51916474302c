"""What a recipe demands of the scores of single examples. Without numpy: every gate reads it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from conditions.checks import Check, Direction, Kind
from conditions.spending import spent

NONE, UNRESOLVED = "none", "unresolved"
"""What stands in place of the champion's ARN: there is none yet; nobody looked for one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demands:
    """``GateConfig`` documents the fields; margins are in the metric's unit."""

    directions: Mapping[str, Direction] = field(default_factory=dict)
    """Metric → which values are better, of every metric below."""
    non_inferiority: Mapping[str, float] = field(default_factory=dict)
    superiority: Mapping[str, float] = field(default_factory=dict)
    slice_regression: Mapping[str, float] = field(default_factory=dict)
    smallest_effect: Mapping[str, float] = field(default_factory=dict)
    max_group_influence: float | None = None
    max_calibration_error: float | None = None
    min_examples: int | None = None
    confidence: float = 0.95
    power: float = 0.8
    min_groups: int = 20
    min_slice_examples: int = 100
    min_slice_groups: int = 10
    cold_start: Literal["pass", "reject"] = "pass"
    look: int = 1
    """The how-manieth comparison with this champion on this test split it is; 0: nobody counted."""

    @property
    def limits_at(self) -> float:
        """Confidence of the limits of an improvement: all looks together keep ``confidence``."""
        return 1 - spent(1 - self.confidence, self.look)

    @property
    def compared(self) -> list[str]:
        """The metrics that are compared with the champion's."""
        of = (self.non_inferiority, self.superiority, self.slice_regression, self.smallest_effect)
        return list(dict.fromkeys(metric for margins in of for metric in margins))

    @property
    def any(self) -> bool:
        """Whether the scores have to be read at all."""
        absolute = (self.max_calibration_error, self.min_examples)
        return bool(self.compared) or any(demand is not None for demand in absolute)


def undecided(demands: Demands, reason: str, *, passed: bool, compared_only: bool) -> list[Check]:
    """Every check of the scores, none of which could be made, for one and the same reason.

    ``compared_only``: those against the champion alone.
    """
    comparisons: list[tuple[Kind, Mapping[str, float], int]] = [
        ("non_inferiority", demands.non_inferiority, -1),
        ("superiority", demands.superiority, 1),
        ("slice_regression", demands.slice_regression, -1),
        ("power", demands.smallest_effect, 1),
    ]
    found = [
        _undecided(kind, metric, sign * margin, reason, passed)
        for kind, margins, sign in comparisons
        for metric, margin in margins.items()
    ]
    if demands.compared:
        groups = demands.min_groups
        found.append(_undecided("sample_size", "effective_groups", groups, reason, passed))
        if (most := demands.max_group_influence) is not None:
            found += [_undecided("influence", metric, most, reason, passed)
                      for metric in demands.compared]  # fmt: skip
    if compared_only:
        return found
    if demands.max_calibration_error is not None:
        most = demands.max_calibration_error
        found.append(_undecided("calibration", "calibration_error", most, reason, passed))
    if demands.min_examples is not None:
        found.append(_undecided("sample_size", "examples", demands.min_examples, reason, passed))
    return found


def _undecided(kind: Kind, metric: str, threshold: float, reason: str, passed: bool) -> Check:
    return Check(
        kind=kind,
        name=name_of(kind, metric),
        metric=metric,
        direction="lower" if kind in ("calibration", "power", "influence") else "higher",
        value=None,
        threshold=threshold,
        passed=passed,
        reason=reason,
    )


def name_of(kind: Kind, metric: str) -> str:
    """The name of a check of the scores."""
    own = {"calibration": "max_calibration_error", "sample_size": f"min_{metric}"}
    return own.get(kind, f"{kind}_{metric}")
