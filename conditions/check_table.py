"""The table of the gate's checks, whose entries the modules in ``conditions.checks`` declare.

All of these are derived from it: the recipe's fields (``steps.gate.config``), the job's arguments
(``conditions.gate_arguments``), the files that the gate reads, the kinds in gate.json, the words of
summary and report (``pipelines.run_report.step_documents``) and the picture that shows a check. It
imports neither numpy, pydantic nor the SDK, because every gate and all that shows a verdict import
it.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Literal

import conditions.checks
from conditions.alpha_spending import compute_significance_level
from conditions.gate_check import Check, Direction
from conditions.gate_documents import Evidence
from conditions.no_champion import NONE, UNRESOLVED_ARN
from trainyard.common.errors import GateError

# What a recipe demands of a model, as the gate's job gets it. Like the table, without numpy.


@dataclass(frozen=True, slots=True, kw_only=True)
class Demands:
    """Values of the recipe's section ``gate``, such as ``demands["min_groups"]``, and other inputs
    of the gate's job.
    """

    values: Mapping[str, Any]
    """Value of every field of the table, by name. Margins are in the metric's unit."""
    directions: Mapping[str, Direction] = field(default_factory=dict)
    """Whether lower or higher is better, by metric, for the primary and all compared metrics."""
    primary_metric: str = ""
    """Metric that must be better than the baseline's, if the recipe names a baseline."""
    champion: str = UNRESOLVED_ARN
    """ARN of the model package to compare with, or ``none``, or ``unresolved``."""
    look_number: int = 0
    """Number of this comparison with this champion on this test split (look), from 1. 0 if it was
    not counted."""

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    @property
    def limits_confidence(self) -> float:
        """Confidence of the improvement's limits in this comparison on this test split (look).

        It is chosen so that all comparisons together keep the recipe's ``confidence``. Without a
        champion no comparisons are counted, so each one is treated as the first.
        """
        look_number = 1 if self.champion == NONE else self.look_number
        return 1 - compute_significance_level(1 - self["confidence"], look_number)


Need = Literal["scores", "champion", "slices", "predictions"]
"""An input that a check needs in addition to the numbers in evaluation.json.

``champion`` (the champion's scores) and ``slices`` (columns of the scores) include ``scores``."""
Limit = Literal["low above", "high above", "high at most"]
"""The confidence limit of a value that is compared with the threshold, and the comparison."""
Picture = Literal["metrics", "champion", "budgets"]
LAST = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A field of the recipe's section ``gate``, and the argument that passes it to the gate's job.

    ``form`` is one of: ``value``, one value of type ``value_type``; ``margins``, a mapping of
    metric to margin in the metric's own unit, for a comparison with the champion; ``thresholds``, a
    mapping of name to threshold, for all ``max_<metric>`` and ``min_<metric>``, which are separate
    fields in a recipe.
    """

    name: str
    doc: str
    form: Literal["value", "margins", "thresholds"] = "value"
    value_type: type[float] | type[int] | type[str] = float
    default: Any = None
    """Value if the recipe leaves the field out. None: nothing is demanded then."""
    gt: float | None = None
    ge: float | None = None
    lt: float | None = None
    le: float | None = None
    choices: tuple[str, ...] = ()


Values = Mapping[str, Any]
"""Values of all fields of the table, by name."""


def _sets_first_field(check: "GateCheck", values: Values) -> bool:
    """Return whether the recipe sets the check's first field."""
    return values[check.fields[0].name] not in (None, {}, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class GateCheck:
    """A check of the gate: one entry of the table."""

    kind: str
    """Kind of the check in gate.json. Several entries may have the same kind."""
    judge: Callable[[Evidence, Demands], Iterable[Check]]
    """Return the check's rows of gate.json. It is called if the recipe declares the check, and its
    needs are met."""
    fields: tuple[Field, ...] = ()
    """Recipe fields of the check. A recipe declares the check by setting the first one."""
    is_declared: Callable[["GateCheck", Values], bool] = _sets_first_field
    refuse: Callable[[Values], str | None] = lambda values: None
    """Return why the recipe's values do not fit together, or None if they do."""
    needs: frozenset[Need] = frozenset()
    expected_rows: Callable[[Demands], Iterable[tuple[str, float]]] | None = None
    """Return (metric, threshold) of each row. Every check that needs scores must have it: if the
    scores are missing or bad, no rows can be computed, and rejecting rows are written from this
    instead.
    """
    direction: Direction = "lower"
    """Whether lower or higher values are better, in the rows that ``make_row`` creates."""
    name: str = "max_{metric}"
    """Pattern of these rows' names."""
    limit: Limit | None = None
    """Limit that is compared. None: the value itself is compared, by its direction."""
    picture: Picture | None = None
    label: str = "{metric}"
    """Label in the picture of the budgets."""
    order: int = LAST
    """Sort key of the rows in gate.json, among checks with equally many needs, and of the job's
    arguments."""
    display_order: int = LAST
    """Sort key of the kind in gate.json and in the Verdict step."""

    def __post_init__(self) -> None:
        if "scores" in self.needs and self.expected_rows is None:
            raise GateError(
                f"gate check {self.kind}: needs scores but has no expected_rows, so bad scores "
                "would pass"
            )

    def compute_rows(self, evidence: Evidence, demands: Demands) -> list[Check]:
        """Return the check's rows for this evidence.

        Raises:
            GateError: there are no rows, so that nothing could reject, or one of another kind.
        """
        rows = list(self.judge(evidence, demands))
        if not rows or any(row.kind != self.kind for row in rows):
            kinds = [row.kind for row in rows]
            raise GateError(
                f"gate check {self.kind}: returned rows of kinds {kinds}; expected rows of kind "
                f"{self.kind} only, and at least one"
            )
        return rows

    def build_rows_without_scores(
        self, demands: Demands, *, is_pass: bool, reason: str
    ) -> list[Check]:
        """Return the check's rows if the scores are missing, bad or not comparable."""
        thresholds = self.expected_rows(demands) if self.expected_rows else ()
        return [
            self.make_row(metric, threshold, value=None, passed=is_pass, reason=reason)
            for metric, threshold in thresholds
        ]

    @property
    def stage(self) -> int:
        """Return how many kinds of scores the check needs. Rows of lower stages come first."""
        return sum(need in self.needs for need in ("scores", "champion", "slices"))

    @property
    def margins(self) -> Field | None:
        """Return the field with the compared metrics and their margins, or None without one."""
        return next((field for field in self.fields if field.form == "margins"), None)

    def make_row(
        self,
        metric: str,
        threshold: float,
        *,
        value: float | None,
        passed: bool,
        reason: str,
        **more: Any,
    ) -> Check:
        """Return a row of this check. ``more``: further fields of ``Check``, such as limits."""
        return Check(
            kind=self.kind,
            name=self.name.format(metric=metric),
            metric=metric,
            direction=self.direction,
            value=value,
            threshold=threshold,
            passed=passed,
            reason=reason,
            **more,
        )


SETTINGS = (
    Field(
        name="confidence",
        default=0.95,
        ge=0.8,
        lt=1,
        doc="One-sided: however many models that are no better are tried on one test split against "
        "one champion, the chance that any of them passes is at most 1 - confidence, under the "
        "conditions in docs/gate.md. For ``slice_regression``: the same limit on the chance that a "
        "model without a bad slice is rejected.",
    ),
    Field(
        name="range",
        form="margins",
        gt=0,
        doc="Metric → the largest difference of two of its values, 1 for an accuracy: comparisons "
        "then hold for any distribution within it. A workload declares its own metrics' ranges.",
    ),
    Field(
        name="clip",
        form="margins",
        gt=0,
        doc="Metric → the limit to which a group's difference is clipped, in the metric's unit. "
        "Comparisons then hold for any distribution.",
    ),
    Field(
        name="min_groups",
        value_type=int,
        default=20,
        ge=2,
        doc="Effective groups that a comparison with the champion needs: (Σ weight)² / Σ weight².",
    ),
    Field(
        name="min_slice_examples",
        value_type=int,
        default=100,
        ge=1,
        doc="Examples that a slice needs to be tested.",
    ),
    Field(
        name="min_slice_groups",
        value_type=int,
        default=10,
        ge=2,
        doc="Effective groups that a slice needs to be tested.",
    ),
    Field(
        name="cold_start",
        value_type=str,
        default="pass",
        choices=("pass", "reject"),
        doc="Outcome of the comparisons while the registry has no Approved package to compare "
        "with. All other checks still run, and ``pass`` requires at least one of them.",
    ),
)
"""Fields that belong to no single check. Every gate that reads scores gets them as arguments."""


@cache
def load_checks() -> tuple[GateCheck, ...]:
    """Return all entries, sorted by ``order``, from ``CHECKS`` of each module in
    ``conditions.checks``.
    """
    modules = (
        import_module(f"{conditions.checks.__name__}.{module_info.name}")
        for module_info in iter_modules(conditions.checks.__path__)
    )
    all_checks = [check for module in modules for check in module.CHECKS]
    return tuple(sorted(all_checks, key=lambda check: check.order))


def list_kinds(values: Values | None = None) -> tuple[str, ...]:
    """Return the kinds of checks in the order in which gate.json and the Verdict step show them.

    With ``values``, return only the kinds that the recipe's values ask for.
    """
    asked_kinds = {
        check.kind
        for check in (load_checks() if values is None else select_declared_checks(values))
    }
    sorted_checks = sorted(load_checks(), key=lambda check: check.display_order)
    return tuple(dict.fromkeys(check.kind for check in sorted_checks if check.kind in asked_kinds))


def select_declared_checks(values: Values) -> tuple[GateCheck, ...]:
    """Return the checks whose fields the recipe sets."""
    return tuple(check for check in load_checks() if check.is_declared(check, values))


def list_compared_metrics(values: Values) -> list[str]:
    """Return the metrics that are compared with the champion's."""
    champion_checks = [check for check in load_checks() if "champion" in check.needs]
    margins = [check.margins.name for check in champion_checks if check.margins]
    return list(dict.fromkeys(metric for name in margins for metric in values[name]))


def list_fields() -> tuple[Field, ...]:
    """Return the gate's fields: those of the checks in their order, then the settings."""
    return (*(field for check in load_checks() for field in check.fields), *SETTINGS)


def select_demanded_checks(demands: Demands) -> tuple[GateCheck, ...]:
    """Return the checks that the recipe asks for, in the order of their rows in gate.json."""
    return tuple(sorted(select_declared_checks(demands.values), key=lambda check: check.stage))
