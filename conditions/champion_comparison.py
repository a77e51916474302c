"""Field and rows that the checks against the champion have in common.

``improvement`` is positive where the challenger is better, in the metric's own unit, whichever
values of the metric are better. A limit that is infinite is None in a check, and never passes.
"""

from collections.abc import Iterator
from typing import Any

from conditions.check_table import Field, GateCheck
from conditions.demands import Demands
from conditions.gate_check import Check, number, reaches
from conditions.gate_evidence import Compared

SOME = 0.5
"""The reason says so where a smaller share of the groups than this differs."""


def margins(name: str, doc: str, *, gt: float | None = None, ge: float | None = None) -> Field:
    """Return the field of a comparison: metric → margin, above ``gt`` or at least ``ge``."""
    return Field(name=name, form="margins", doc=doc, gt=gt, ge=ge)


def row(check: GateCheck, of: Compared, threshold: float, **found: Any) -> Check:
    """Return a row of ``check`` on one metric."""
    return check.row(
        of.metric,
        threshold,
        confidence=of.confidence,
        challenger=number(of.challenger),
        champion=number(of.champion),
        **found,
    )


def above(check: GateCheck, of: Compared, bound: float, other: str = "the champion") -> Check:
    """Check that the lower limit of the improvement over ``other`` is above ``bound``."""
    found = of.improvement
    low = number(found.low)
    shown = "without limit: too few groups differ" if low is None else f"{low:+.4g}"
    notes = "".join(f"; {note}" for note in _notes(of))
    return row(
        check,
        of,
        bound,
        value=number(found.value),
        low=low,
        high=number(found.high),
        method=found.method,
        passed=low is not None and low > bound,
        reason=f"{check.kind.replace('_', '-')}: {of.metric} is {of.challenger:.5g}, "
        f"{other}'s {of.champion:.5g}: an improvement of {found.value:+.4g}, with "
        f"{of.confidence:.4g} confidence {APPROXIMATELY * (found.method == 'approximate')}at least "
        f"{shown}{', neighbouring groups being alike' * of.in_order}; the recipe demands more than "
        f"{bound:+g}{notes}",
    )


APPROXIMATELY = "(approximate: no range is declared) "


def _notes(of: Compared) -> Iterator[str]:
    """Iterate over remarks on the groups that a reader of the limits should know."""
    found = of.improvement
    if not reaches(found.differing_groups, SOME * found.effective_groups):
        yield (
            f"the models differ on {found.differing_groups:.3g} of {found.effective_groups:.3g} "
            "effective groups, and only those are evidence"
        )
    if of.likeness:
        yield (
            f"neighbouring groups in the order of the rows are alike (correlation "
            f"{of.likeness:.2g}), which makes the limit too narrow: if the groups are days or have "
            "another order, declare workload.config.group_ordered: true"
        )


def signed(check: GateCheck, demands: Demands, sign: int) -> Iterator[tuple[str, float]]:
    """Iterate over (metric, ``sign`` × margin) of the check's first field."""
    return ((metric, sign * margin) for metric, margin in demands[check.fields[0].name].items())
