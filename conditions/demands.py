"""What a recipe demands of a model, as the gate's job is told. Without numpy, as the table."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from conditions.alpha_spending import spent
from conditions.gate_check import Direction
from conditions.no_champion import UNRESOLVED


@dataclass(frozen=True, slots=True, kw_only=True)
class Demands:
    """The recipe's values, and what else the job is told. ``demands["min_groups"]`` is a value."""

    values: Mapping[str, Any]
    """Field → its value, of every field of the table; margins are in the metric's unit."""
    directions: Mapping[str, Direction] = field(default_factory=dict)
    """Metric → which values are better, of the primary metric and of all that are compared."""
    primary_metric: str = ""
    """What must beat a baseline, where one is named."""
    champion: str = UNRESOLVED
    """ARN of the model package to compare with, ``none`` or ``unresolved``."""
    look: int = 0
    """The how-manieth comparison with this champion on this test split it is; 0: nobody counted."""

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    @property
    def limits_at(self) -> float:
        """Confidence of the limits of an improvement: all looks together keep ``confidence``."""
        return 1 - spent(1 - self["confidence"], self.look)
