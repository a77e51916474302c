"""The gate's settings."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import ConfigDict, FiniteFloat, create_model
from pydantic import Field as Setting

from conditions.check_table import (
    Field,
    Need,
    list_fields,
    list_kinds,
    load_checks,
    select_declared_checks,
)
from steps.config import ProcessingCompute

# Packages that the gate job needs to read scores; some are missing from AWS's PyTorch images.
PACKAGES = ("numpy", "pyarrow", "scipy")
TYPES = {float: FiniteFloat, int: int, str: str}


def name_threshold_parameter(threshold: str) -> str:
    """Return the name of a threshold's pipeline parameter, such as ``GateMaxBitsPerByte``."""
    return "Gate" + "".join(word.capitalize() for word in threshold.split("_"))


def _make_setting(field: Field) -> tuple[Any, Any]:
    """Return (type, pydantic field) of the recipe's setting for a field of the table of checks."""
    bounds = {n: b for n in ("gt", "ge", "lt", "le") if (b := getattr(field, n)) is not None}
    if field.form == "margins":
        of_metrics = dict[str, Annotated[FiniteFloat, Setting(**bounds)]]
        return of_metrics, Setting(default={}, description=field.doc)
    choices = field.choices
    kind = Literal[choices] if choices else TYPES[field.value_type]  # type: ignore[valid-type]
    type_ = kind if field.default is not None else kind | None
    return type_, Setting(default=field.default, description=field.doc, **bounds)


_FIELDS: dict[str, Any] = {
    f.name: _make_setting(f) for f in list_fields() if f.form != "thresholds"
}

if TYPE_CHECKING:

    class DeclaredFields(ProcessingCompute):  # for type checkers: the fields that we read by name
        below_baseline: str | None
        cold_start: str
        max_latency_p95_ms: float | None
        max_leaked_examples: float | None
        max_leaked_groups: float | None

else:
    DeclaredFields = create_model("Declared", __base__=ProcessingCompute, **_FIELDS)
    """Model with the fields of the table of checks (``conditions.check_table``)."""


class GateConfig(DeclaredFields):
    """Requirements that a model must meet to be registered; docs/gate.md explains each check.

    Besides the fields below, ``max_<metric>`` and ``min_<metric>`` set an upper or a lower limit,
    in the metric's own unit, for any metric of the recipe's workload: ``max_bits_per_byte: 2.5``.

    All of them are constants of the pipeline: an execution cannot change them, unless the recipe's
    ``pipeline.overridable`` names a threshold.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, FiniteFloat] = Setting(init=False)  # type: ignore[override]

    visible_checks: bool = False
    """Whether the Verdict step also shows one condition for each kind of check."""

    @property
    def thresholds(self) -> dict[str, float]:
        """Return {``max_<metric>`` or ``min_<metric>``: value} in the recipe's order."""
        return dict(self.__pydantic_extra__)

    @property
    def values(self) -> dict[str, Any]:
        """Return the recipe's value for each field of the table of checks."""
        return {
            f.name: self.thresholds if f.form == "thresholds" else getattr(self, f.name)
            for f in list_fields()
        }

    @property
    def comparisons(self) -> dict[str, dict[str, float]]:
        """Return the margins of the declared comparisons, {field: {metric: margin}}."""
        margin_fields = (check.margins for check in select_declared_checks(self.values))
        return {f.name: getattr(self, f.name) for f in margin_fields if f}

    @property
    def needs(self) -> frozenset[Need]:
        """Return what the declared checks need in addition to the numbers in evaluation.json."""
        return frozenset(
            need for check in select_declared_checks(self.values) for need in check.needs
        )

    @property
    def has_absolute_check(self) -> bool:
        """Return whether any declared check needs no champion."""
        return any("champion" not in check.needs for check in select_declared_checks(self.values))

    @property
    def reads_scores(self) -> bool:
        """Return whether any declared check needs the scores of single examples."""
        return "scores" in self.needs

    @property
    def packages(self) -> tuple[str, ...]:
        """Return the packages that the gate's job installs: none if it reads no scores."""
        return PACKAGES if self.reads_scores else ()

    @property
    def kinds(self) -> tuple[str, ...]:
        """Return the kinds of the declared checks, as gate.json names them."""
        return list_kinds(self.values)

    @property
    def value_errors(self) -> list[str]:
        """Return the messages about values that the checks refuse, or that no check uses."""
        compared_names = {metric for margins in self.comparisons.values() for metric in margins}
        return [refusal for check in load_checks() if (refusal := check.refuse(self.values))] + [
            f"gate.{name}.{metric}: no check compares it with the champion's; add one, such as "
            f"non_inferiority: {{{metric}: 0.01}}, or remove it"
            for name in ("range", "clip")
            for metric in getattr(self, name)
            if metric not in compared_names
        ]
