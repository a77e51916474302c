"""What a recipe demands of a model, as the gate's job is told. Without numpy, as the table."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from conditions.champion import UNRESOLVED
from conditions.check import Check, Direction
from conditions.spending import spent
from conditions.table import Field, GateCheck, checks, compared, declared

SETTINGS = (
    Field(
        name="confidence",
        default=0.95,
        ge=0.8,
        lt=1,
        doc="One-sided: of models that are no better, however many are tried on one test split "
        "against one champion, any passes with probability 1 - confidence, as far as docs/gate.md "
        "says. Of ``slice_regression``: a model without a bad slice is stopped with that.",
    ),
    Field(
        name="power",
        default=0.8,
        gt=0.5,
        lt=1,
        doc="Chance with which an improvement of ``smallest_effect`` must be found.",
    ),
    Field(
        name="min_groups",
        of=int,
        default=20,
        ge=2,
        doc="Effective groups that a comparison with the champion needs: (Σ weight)² / Σ weight².",
    ),
    Field(
        name="min_slice_examples",
        of=int,
        default=100,
        ge=1,
        doc="Examples that a slice needs to be tested.",
    ),
    Field(
        name="min_slice_groups",
        of=int,
        default=10,
        ge=2,
        doc="Effective groups that a slice needs to be tested.",
    ),
    Field(
        name="cold_start",
        of=str,
        default="pass",
        choices=("pass", "reject"),
        doc="What the comparisons give while the registry holds no Approved package to compare "
        "with. All other checks are made as ever, and ``pass`` needs some.",
    ),
)
"""Fields that no check declares alone; every gate that reads scores is told them."""


def fields() -> tuple[Field, ...]:
    """Every field of the gate: those of the checks in their order, then the settings."""
    return (*(given for check in checks() for given in check.fields), *SETTINGS)


def defaults() -> dict[str, Any]:
    """Field → the value of one that a recipe leaves out."""
    return {f.name: {} if f.form != "value" else f.default for f in fields()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Demands:
    """The recipe's values, and what else the job is told. ``demands["min_groups"]`` is a value."""

    values: Mapping[str, Any]
    """Field → value; one that is left out has its default. Margins are in the metric's unit."""
    directions: Mapping[str, Direction] = field(default_factory=dict)
    """Metric → which values are better, of the primary metric and of all that are compared."""
    primary_metric: str | None = None
    """What must beat a baseline."""
    champion: str = UNRESOLVED
    """ARN of the model package to compare with, ``none`` or ``unresolved``."""
    look: int = 0
    """The how-manieth comparison with this champion on this test split it is; 0: nobody counted."""

    def __getitem__(self, name: str) -> Any:
        return self.values[name] if name in self.values else defaults()[name]

    @property
    def all_values(self) -> dict[str, Any]:
        """Field → value, of all fields."""
        return defaults() | dict(self.values)

    @property
    def limits_at(self) -> float:
        """Confidence of the limits of an improvement: all looks together keep ``confidence``."""
        return 1 - spent(1 - self["confidence"], self.look)

    @property
    def compared(self) -> list[str]:
        """The metrics that are compared with the champion's."""
        return compared(self.all_values)

    @property
    def declared(self) -> tuple[GateCheck, ...]:
        """The checks that are asked for, in the order of their rows in gate.json."""
        return tuple(sorted(declared(self.all_values), key=lambda check: check.stage))

    @property
    def of_scores(self) -> tuple[GateCheck, ...]:
        """Those that need the scores of single examples."""
        return tuple(check for check in self.declared if "scores" in check.needs)


def undecided(demands: Demands, reason: str, *, passed: bool, compared_only: bool) -> list[Check]:
    """Every check of the scores, none of which could be made, for one and the same reason.

    ``compared_only``: those against the champion alone. The rows stand in the order that they have
    always had in gate.json, those against the champion first.
    """
    against = [check for check in demands.of_scores if "champion" in check.needs]
    found = sorted(against, key=lambda check: check.shown)
    if not compared_only:
        found += [check for check in reversed(demands.of_scores) if check not in against]
    return [
        check.row(metric, threshold, value=None, passed=passed, reason=reason)
        for check in found
        for metric, threshold in check.expected(demands)
    ]
