"""How much of a training's time becomes progress when it is interrupted now and then.

A training saves every ``interval`` of work, which stops it for ``save``. Interruptions of the whole
job come at random (a Poisson process), ``between`` of running time from one to the next on average;
each throws back to the last complete checkpoint and costs ``restart`` until the first new step: the
wait for capacity, the start, the load. All four have the same unit, whichever it is.
"""

import math

STEPS = 8
"""Of Newton's method, from which on nothing changes but the last digits."""


def useful_share(
    interval: float, save: float, restart: float, between: float, write: float = 0.0
) -> float:
    """Share of the time that becomes progress: interval · e^(−write/between) / ((between + restart)
    · (e^((interval + save)/between) − 1)).

    It is exact. From one restart to the next interruption there are on average ``between`` of
    running, and as many saved intervals as checkpoints are complete before an exponential time is
    over: Σₖ e^(−(k·(interval + save) + write)/between). An interruption during a restart only
    prolongs that restart, and belongs into its mean. With ``write`` 0 the formula is the usual one
    for saves that stop the training (Daly 2006, without interruptions of restarts).

    Args:
        write: an asynchronous save's time from its stall's end until the checkpoint is complete; it
            costs no time, and an interruption before its end loses an interval more. It has to end
            before the next save begins.
    """
    if min(interval, between) <= 0 or min(save, restart, write) < 0:
        raise ValueError(
            f"interval {interval}, between {between}: expected more than 0; save {save}, restart "
            f"{restart}, write {write}: expected 0 or more"
        )
    cycle = (interval + save) / between
    if cycle + write / between > 700:  # e^700 is nearly the largest float: nothing is ever saved
        return 0.0
    return interval * math.exp(-write / between) / ((between + restart) * math.expm1(cycle))


def best_interval(
    save: float, restart: float, between: float, write: float = 0.0, shortest: float = 0.0
) -> float:
    """The interval with the largest useful share: between · (1 + W(−e^(−1 − save/between))).

    W is Lambert's function, found by Newton's steps on −u − ln(1 − u) = save/between for
    u = interval/between, from the right, where they cannot miss the root. ``restart`` has no say:
    it costs the same whatever the interval is.

    Args:
        write: as of :func:`useful_share`: a save does not begin before the one before is written.
        shortest: what an interval cannot be shorter than, such as one step.
    """
    if save < 0 or between <= 0:
        raise ValueError(f"save {save}, between {between}: expected 0 or more, and more than 0")
    least = max(shortest, write - save)
    cost = save / between
    if cost == 0:  # what costs nothing is done as often as it can be
        return least
    if cost > 30:  # 1 − u = e^(−1 − cost) and less is below what floats resolve
        return max(between, least)
    share = min(math.sqrt(2 * cost), -math.expm1(-1 - cost))
    for _ in range(STEPS):
        share -= (-share - math.log1p(-share) - cost) * (1 - share) / share
    return max(share * between, least)
