"""The significance level of the n-th comparison (look) with one champion on one test split.

A look is one comparison of a challenger with the champion on the test split. With enough tries,
some challenger always passes: one that is only as good as the champion passes a test of level α
with chance α, and the best of fifty such challengers passes it every second time. So all looks
share one α (α-spending: Lan & DeMets, Biometrika 70, 1983; α-investing that earns nothing back:
Foster & Stine, Journal of the Royal Statistical Society B 70, 2008). The first k looks spend at
most

    α · (1 - REST / k)

for any k. The sum of the levels bounds the chance of any false promotion (Bonferroni), even if the
tries resemble each other, and even if each is chosen after the last result was seen.

Why these levels: the first look has ``1 - REST`` of α, which costs a single honest try at most 2
points of power, while the usual 6 / (π²k²) costs 9. The k-th look has REST · α / (k(k - 1)), which
decreases as slowly as that series. Why not Thresholdout (Dwork et al., Science 349, 2015): its
noise needs many more examples than a test split of some hundred groups has. Why a promotion earns
nothing back: there is a new champion then, and its looks are counted from 1.

This is a separate module because recipe, gate and ledger use it without numpy.
"""

from trainyard.common.errors import GateError

REST = 0.1
"""Share of α that all looks after the first one have together."""


def compute_significance_level(alpha: float, look_number: int) -> float:
    """Return the significance level of comparison number ``look_number`` on one test split, from 1.

    The levels of all comparisons (looks) with one champion on it add up to ``alpha``.

    Raises:
        GateError: ``alpha`` is not between 0 and 1, or ``look_number`` is below 1.
    """
    if not 0 < alpha < 1:
        raise GateError(f"alpha is {alpha}; expected a number between 0 and 1")
    if look_number < 1:
        raise GateError(f"look is {look_number}; the first look at a test split is look 1")
    return alpha * (1 - REST if look_number == 1 else REST / (look_number * (look_number - 1)))
