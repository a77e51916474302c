"""A recipe's demands on a model, as the gate's job gets them. Without numpy, like the table."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from conditions.alpha_spending import spent
from conditions.gate_check import Direction
from conditions.no_champion import NONE, UNRESOLVED_ARN


@dataclass(frozen=True, slots=True, kw_only=True)
class Demands:
    """The recipe's values and the job's other inputs. ``demands["min_groups"]`` is a value."""

    values: Mapping[str, Any]
    """Field → its value, of every field of the table; margins are in the metric's unit."""
    directions: Mapping[str, Direction] = field(default_factory=dict)
    """Metric → better values, for the primary metric and all compared metrics."""
    primary_metric: str = ""
    """Metric that must beat a baseline, where one is named."""
    champion: str = UNRESOLVED_ARN
    """ARN of the model package to compare with, ``none`` or ``unresolved``."""
    model: str = "challenger"
    """The judged model's table of scores: ``challenger``, or ``int8``, its int8 version."""
    look_number: int = 0
    """Number of this comparison with this champion on this test split, from 1; 0: not counted."""

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    @property
    def limits_at(self) -> float:
        """Confidence of an improvement's limits; all looks together keep ``confidence``. Without a
        champion no looks are counted, and each is the first.
        """
        look_number = 1 if self.champion == NONE else self.look_number
        return 1 - spent(1 - self["confidence"], look_number)
