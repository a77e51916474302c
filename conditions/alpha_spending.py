"""The significance level that is left for another look at the same test split and champion.

Enough tries always win: an equal challenger passes one test of level α with chance α, but the best
of fifty such challengers passes it every second time. So the looks share one α (α-spending: Lan &
DeMets, Biometrika 70, 1983; α-investing that earns nothing back: Foster & Stine, Journal of the
Royal Statistical Society B 70, 2008). Of k looks at most

    α · (1 - REST / k)

is spent, for any k. The sum of the levels bounds the chance of any false promotion (Bonferroni),
however much the tries resemble each other, and although each is chosen after the last was seen.

Why these levels: the first look keeps ``1 - REST`` of α, which costs the one honest try at most 2
points of power, where the usual 6 / (π²k²) costs 9; and the k-th keeps REST · α / (k(k - 1)), as
long a tail as that one has. Why not Thresholdout (Dwork et al., Science 349, 2015): its noise
takes many more examples than a test split of some hundred groups has. Why nothing is earned back
by a promotion: there is a new champion then, whose looks are counted from 1.

Apart: recipe, gate and ledger read it without numpy.
"""

from trainyard.common.errors import GateError

REST = 0.1
"""Share of α that all looks after the first have together."""


def spent(alpha: float, look_number: int) -> float:
    """Return the level of the ``look_number``-th test, counted from 1; the levels of all looks sum
    to α.

    Raises:
        GateError: ``alpha`` is not between 0 and 1, or ``look_number`` is below 1.
    """
    if not 0 < alpha < 1:
        raise GateError(f"alpha is {alpha}; expected a number between 0 and 1")
    if look_number < 1:
        raise GateError(f"look is {look_number}; the first look at a test split is look 1")
    return alpha * (1 - REST if look_number == 1 else REST / (look_number * (look_number - 1)))
