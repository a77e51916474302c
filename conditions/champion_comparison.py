"""Recipe field and gate.json row that the checks against the champion have in common.

``improvement`` is in the metric's own unit. It is positive if the challenger is better, whether
lower or higher values of the metric are better. An infinite limit is None in a check, and such a
check never passes.
"""

from collections.abc import Iterator
from typing import Any

from conditions.check_table import Demands, Field, GateCheck
from conditions.gate_check import Check, to_finite_number
from conditions.gate_documents import MetricComparison


def make_margins_field(
    name: str, doc: str, *, gt: float | None = None, ge: float | None = None
) -> Field:
    """Return a comparison's recipe field: a margin per metric, above ``gt`` or at least ``ge``."""
    return Field(name=name, form="margins", doc=doc, gt=gt, ge=ge)


def make_comparison_row(
    check: GateCheck, comparison: MetricComparison, threshold: float, **values: Any
) -> Check:
    """Return the gate.json row of ``check`` for one metric; ``values`` as in ``make_row``."""
    return check.make_row(
        comparison.metric,
        threshold,
        confidence=comparison.confidence,
        challenger=to_finite_number(comparison.challenger),
        champion=to_finite_number(comparison.champion),
        **values,
    )


def check_lower_limit(check: GateCheck, comparison: MetricComparison, bound: float) -> Check:
    """Check that the lower limit of the improvement is above ``bound``."""
    improvement = comparison.improvement
    low = to_finite_number(improvement.low)
    low_text = "without limit: too few groups differ" if low is None else f"{low:+.4g}"
    return make_comparison_row(
        check,
        comparison,
        bound,
        value=to_finite_number(improvement.value),
        low=low,
        high=to_finite_number(improvement.high),
        method=improvement.method,
        passed=low is not None and low > bound,
        reason=f"{check.kind.replace('_', '-')}: {comparison.metric} is "
        f"{comparison.challenger:.5g}, the champion's {comparison.champion:.5g}: an improvement of "
        f"{improvement.value:+.4g}, with {comparison.confidence:.4g} confidence "
        f"{APPROXIMATELY * (improvement.method == 'approximate')}at least "
        f"{low_text}{', neighbouring groups being alike' * comparison.in_order}; the recipe "
        f"demands more than {bound:+g}",
    )


APPROXIMATELY = "(approximate: no range is declared) "


def iter_signed_margins(
    check: GateCheck, demands: Demands, sign: int
) -> Iterator[tuple[str, float]]:
    """Yield (metric, ``sign`` × margin) for each margin in the check's first recipe field."""
    return ((metric, sign * margin) for metric, margin in demands[check.fields[0].name].items())
