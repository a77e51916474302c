"""The checks against the champion, each a pure function of an improvement and what is demanded.

``improvement`` is positive where the challenger is better, in the metric's own unit, whichever
values of the metric are better. A limit that is infinite is None in a check, and never passes.
"""

from dataclasses import dataclass

from conditions.checks import Check, Kind, number
from conditions.demands import name_of
from conditions.paired import Improvement


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One metric of the two models on the same examples."""

    metric: str
    challenger: float
    champion: float
    improvement: Improvement
    confidence: float
    """Of each of its limits."""
    in_order: bool = False
    """Whether the groups have an order, and neighbours count as alike."""


def non_inferior(compared: Compared, margin: float) -> Check:
    """The challenger is not worse than the champion by ``margin`` or more.

    Passes when the lower limit is above -margin: a one-sided test of H₀ "worse by the margin" at
    α = 1 - confidence (Piaggio et al., CONSORT for non-inferiority trials, JAMA 308, 2012).
    """
    return _above(compared, "non_inferiority", -margin)


def superior(compared: Compared, margin: float) -> Check:
    """The challenger is better than the champion by more than ``margin``; 0 for better at all."""
    return _above(compared, "superiority", margin)


def powerful(compared: Compared, power: float, effect: float) -> Check:
    """The test split is large enough to find an improvement of ``effect``.

    The smallest improvement that superiority would find with this power is at most ``effect``.
    """
    smallest = number(compared.improvement.detectable(power))
    needed = "" if smallest is None else f" about {(smallest / effect) ** 2:.1f} times the groups"
    passed = smallest is not None and smallest <= effect
    shown = "none" if smallest is None else f"{smallest:.3g}"
    shortage = "" if passed else f": it takes{needed or ' more groups'}"
    return _check(
        compared,
        "power",
        value=smallest,
        threshold=effect,
        passed=passed,
        direction="lower",
        reason=f"the smallest improvement of {compared.metric} that the test split shows with "
        f"power {power:g} is {shown}, the recipe demands at most {effect:g}{shortage}",
    )


def widespread(compared: Compared, most: float) -> Check:
    """No single group has more than this share of the improvement's variance.

    Where one has, the limits rest on what is hardly known: how often such groups come.
    """
    share = compared.improvement.influence
    return _check(
        compared,
        "influence",
        value=share,
        threshold=most,
        passed=share <= most,
        direction="lower",
        reason=f"one group has {share:.2g} of the variance of the improvement in "
        f"{compared.metric}, the recipe allows at most {most:g}",
    )


def _above(compared: Compared, kind: Kind, bound: float) -> Check:
    found = compared.improvement
    low = number(found.low)
    passed = low is not None and low > bound
    shown = "without limit: too few groups differ" if low is None else f"{low:+.4g}"
    return _check(
        compared,
        kind,
        value=found.value,
        threshold=bound,
        passed=passed,
        limits=(low, number(found.high)),
        reason=f"{kind.replace('_', '-')}: {compared.metric} is {compared.challenger:.5g}, the "
        f"champion's {compared.champion:.5g}: better by {found.value:+.4g}, with "
        f"{compared.confidence:.4g} confidence by at least {shown}"
        f"{', neighbouring groups being alike' * compared.in_order}; the recipe demands more than "
        f"{bound:+g}",
    )


def _check(
    compared: Compared,
    kind: Kind,
    *,
    value: float | None,
    threshold: float,
    passed: bool,
    reason: str,
    direction: str = "higher",
    limits: tuple[float | None, float | None] = (None, None),
) -> Check:
    return Check(
        kind=kind,
        name=name_of(kind, compared.metric),
        metric=compared.metric,
        direction=direction,
        value=number(value),
        threshold=threshold,
        passed=passed,
        reason=reason,
        low=limits[0],
        high=limits[1],
        confidence=compared.confidence,
        challenger=number(compared.challenger),
        champion=number(compared.champion),
    )
