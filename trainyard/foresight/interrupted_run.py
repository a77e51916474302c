"""Predict a training's run: when it is finished and what it costs, interruptions included.

A formula gives the mean over all interruptions. Its unknowns (the work, the first wait, the start,
the mean time between interruptions, the price) are combined by equally likely values of each; a
run's own luck with interruptions is not in the interval.
"""

import math
import random
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist, fmean

from trainyard.foresight.cloud_machines import START, TABLE, Machines
from trainyard.foresight.interval import Spread

STEPS = 8
"""Steps of Newton's method, after which only the last digits change."""


def useful_share(
    interval: float, save: float, restart: float, between: float, write: float = 0.0
) -> float:
    """Return the share of the time that becomes progress: interval · e^(−write/between) / ((between
    + restart) · (e^((interval + save)/between) − 1)).

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
    # e^700 is nearly the largest float: nothing is ever saved.
    if cycle + write / between > 700:
        return 0.0
    return interval * math.exp(-write / between) / ((between + restart) * math.expm1(cycle))


def best_interval(
    save: float, restart: float, between: float, write: float = 0.0, shortest: float = 0.0
) -> float:
    """Return the interval with the largest useful share: between · (1 + W(−e^(−1 − save/between))).

    W is Lambert's function, found by Newton's steps on −u − ln(1 − u) = save/between for
    u = interval/between. ``restart`` does not matter: it costs the same whatever the interval is.

    Args:
        write: see :func:`useful_share`; a save does not begin before the previous one is written.
        shortest: lower bound of the interval, such as one step.
    """
    if save < 0 or between <= 0:
        raise ValueError(f"save {save}, between {between}: expected 0 or more, and more than 0")
    least = max(shortest, write - save)
    cost = save / between
    # A save that costs nothing is done as often as possible.
    if cost == 0:
        return least
    # 1 − u = e^(−1 − cost) and less is below what floats resolve.
    if cost > 30:
        return max(between, least)
    # From the right, where Newton's steps cannot miss the root.
    share = min(math.sqrt(2 * cost), -math.expm1(-1 - cost))
    for _ in range(STEPS):
        share -= (-share - math.log1p(-share) - cost) * (1 - share) / share
    return max(share * between, least)


DRAWS = 401
"""Equally likely values of each unknown; odd, so that one of them is the median."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Time and cost of a training; ``inf`` hours and USD if it would never finish."""

    hours: Spread
    """Hours from the first wait until the last save is complete."""

    charged_hours: Spread
    """Hours for which the machines are there: ``hours`` without the waits for them."""

    usd: Spread
    interruptions: Spread
    """Expected number of interruptions."""

    useful: float
    """The work's share of the hours, on average."""

    save_interval: float
    """Seconds of work from one save to the next."""

    save_stall: float
    """Seconds that a save stops the training."""


def foresee(
    machines: Machines,
    parameters: float,
    step_seconds: Spread,
    steps: int,
    *,
    interval_seconds: float | None = None,
    saved_bytes: float | None = None,
) -> Run:
    """Predict when ``steps`` steps are done, and what they cost.

    Args:
        parameters: parameters of the model; the checkpoint's size follows from them.
        interval_seconds: seconds of training between saves; if left out, the best one as if a save
            stopped the training until it is written. No source says what a write beside the
            training costs; if it were free, saves would be advised every few seconds. No shorter
            than a step or a save.
        saved_bytes: bytes of a checkpoint, all ranks together, if known better.
    """
    stall, write, load = _checkpoint(machines, parameters, saved_bytes)
    interval = interval_seconds or best_interval(
        stall + write, 0.0, machines.between.p50 * 3600, shortest=stall + write
    )
    interval = max(interval, step_seconds.p50)
    estimates = (
        step_seconds.times(steps),
        machines.wait,
        START,
        machines.between,
        machines.usd_per_hour,
    )
    # Of the many later waits the mean counts; the first one is an unknown of its own.
    later_wait = fmean(map(machines.wait.get_quantile, _normal_values()[1]))
    hours, charged_hours, usd, interruptions, useful = [], [], [], [], []
    for unknowns in zip(*_normal_values(), strict=True):
        pairs = zip(estimates, unknowns, strict=True)
        work, wait, begin, between, price = (
            spread.get_quantile(deviations) for spread, deviations in pairs
        )
        begin, between = begin + load, between * 3600
        share = useful_share(min(interval, work), stall, later_wait + begin, between, write)
        life = between + later_wait + begin
        count = work / share / life if share else math.inf
        seconds = begin + count * (between + begin) + write
        charged_hours.append(seconds / 3600)
        usd.append(seconds / 3600 * price)
        hours.append((seconds + wait + count * later_wait) / 3600)
        interruptions.append(count)
        useful.append(work / 3600 / hours[-1])
    return Run(
        hours=Spread.from_values(hours),
        charged_hours=Spread.from_values(charged_hours),
        usd=Spread.from_values(usd),
        interruptions=Spread.from_values(interruptions),
        useful=fmean(useful),
        save_interval=interval,
        save_stall=stall,
    )


@cache
def _normal_values() -> list[list[float]]:
    """Return equally likely values of a standard normal, in another order for each unknown."""
    values = [NormalDist().inv_cdf((place + 0.5) / DRAWS) for place in range(DRAWS)]
    order = random.Random(0)  # noqa: S311 (no secret: the same advice each time)
    return [order.sample(values, DRAWS) for _ in range(5)]


def _checkpoint(
    machines: Machines, parameters: float, saved_bytes: float | None
) -> tuple[float, float, float]:
    """Return the seconds of a save that stop the training, those written beside it, and those of a
    load.

    All GPUs copy their shares to the host's memory while the training waits, all nodes write theirs
    while it continues; published speeds are few, and these are guesses.
    """
    speed = TABLE["checkpoints"]
    gigabytes = (saved_bytes or speed["bytes"] * parameters) / 1e9
    gpus = machines.count * max(machines.gpus_per_node, 1)
    return (
        gigabytes / (gpus * speed["copy"]),
        gigabytes / (machines.count * speed["write"]),
        # A checkpoint that has only adapters is loaded with the weights in 16 bits.
        max(gigabytes, 2 * parameters / 1e9) / (machines.count * speed["read"]),
    )
