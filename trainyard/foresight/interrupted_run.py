"""Predict when a training run is complete and what it costs, interruptions included.

A formula gives the mean over all interruptions. The quantities that are not known exactly (the
work, the first wait, the start, the mean time between interruptions, the price) are combined by
equally likely values of each. The interval does not include how lucky a single training run is with
its interruptions.
"""

import math
import random
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist, fmean

from trainyard.foresight.cloud_machines import START, TABLE, Machines
from trainyard.foresight.interval import Spread

STEPS = 8
"""Number of steps of Newton's method, after which only the last digits change."""


def compute_useful_share(
    interval: float, save: float, restart: float, between: float, write: float = 0.0
) -> float:
    """Return the share of the time in which the training makes lasting progress.

    It is interval · e^(−write/between) / ((between + restart) · (e^((interval + save)/between)
    − 1)), which is exact: between one restart and the next interruption the job runs for
    ``between`` on average, and it completes as many checkpoints as fit before an exponentially
    distributed time is over: Σₖ e^(−(k·(interval + save) + write)/between). An interruption during
    a restart only prolongs that restart, so it belongs to the mean restart. With ``write`` 0 the
    formula is the usual one for saves that stop the training (Daly 2006, without interruptions of
    restarts).

    All times are in the same unit.

    Args:
        interval: work between two saves.
        save: time for which a save stops the training.
        restart: mean time from an interruption until the training continues.
        between: mean running time between interruptions.
        write: time from the end of that stop until an asynchronous checkpoint is complete. It costs
            no time, but an interruption before its end loses one more interval. It has to end
            before the next save begins.

    Raises:
        ValueError: ``interval`` or ``between`` is not positive, or another time is negative.
    """
    if min(interval, between) <= 0 or min(save, restart, write) < 0:
        raise ValueError(
            f"interval {interval}, between {between}: expected more than 0; save {save}, restart "
            f"{restart}, write {write}: expected 0 or more"
        )
    cycle = (interval + save) / between
    # e^700 is nearly the largest float: the share is 0, because hardly any save ever completes.
    if cycle + write / between > 700:
        return 0.0
    return interval * math.exp(-write / between) / ((between + restart) * math.expm1(cycle))


def compute_best_interval(
    save: float, restart: float, between: float, write: float = 0.0, shortest: float = 0.0
) -> float:
    """Return the interval with the largest useful share: between · (1 + W(−e^(−1 − save/between))).

    W is Lambert's function; it is found by Newton's method on −u − ln(1 − u) = save/between for
    u = interval/between. ``restart`` does not matter: it costs the same for every interval.

    Args:
        save: see :func:`compute_useful_share`.
        restart: see :func:`compute_useful_share`; not used.
        between: see :func:`compute_useful_share`.
        write: see :func:`compute_useful_share`; a save does not begin before the previous one is
            written.
        shortest: lower bound of the interval, such as the time of one step.

    Raises:
        ValueError: ``save`` is negative, or ``between`` is not positive.
    """
    if save < 0 or between <= 0:
        raise ValueError(f"save {save}, between {between}: expected 0 or more, and more than 0")
    minimum = max(shortest, write - save)
    cost = save / between
    # If a save costs nothing, save as often as possible.
    if cost == 0:
        return minimum
    # Here 1 − u ≤ e^(−1 − cost), which is below the resolution of floats: u is 1.
    if cost > 30:
        return max(between, minimum)
    # Start at the right of the root, from where Newton's method converges to it.
    share = min(math.sqrt(2 * cost), -math.expm1(-1 - cost))
    for _ in range(STEPS):
        share -= (-share - math.log1p(-share) - cost) * (1 - share) / share
    return max(share * between, minimum)


DRAWS = 401
"""Number of equally likely values per unknown; odd, so that one of them is the median."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Time and cost of a training run; ``inf`` hours and USD if it would never finish."""

    hours: Spread
    """Hours from the start of the first wait until the last save is complete."""

    charged_hours: Spread
    """Hours that are charged: ``hours`` without the waits for machines."""

    usd: Spread
    interruptions: Spread
    """Expected number of interruptions."""

    useful: float
    """Share of the hours that is work, on average."""

    save_interval: float
    """Seconds of work between two saves."""

    save_stall: float
    """Seconds for which a save stops the training."""


def predict_interrupted_run(
    machines: Machines,
    parameters: float,
    step_seconds: Spread,
    steps: int,
    *,
    interval_seconds: float | None = None,
    saved_bytes: float | None = None,
) -> Run:
    """Predict the time and cost of ``steps`` steps, interruptions included.

    Args:
        machines: machines of the job.
        parameters: number of the model's parameters; it determines the size of the checkpoint.
        step_seconds: seconds of one step.
        steps: number of steps.
        interval_seconds: seconds of training between saves. If left out, it is the best interval,
            computed as if a save stopped the training until it is written, because no source says
            what writing during the training costs; if it were free, the advice would be to save
            every few seconds. It is then not shorter than a save. It is never shorter than a step.
        saved_bytes: bytes of a checkpoint over all ranks, if they are known.
    """
    stall, write, load = _estimate_checkpoint(machines, parameters, saved_bytes)
    interval = interval_seconds or compute_best_interval(
        stall + write, 0.0, machines.between.p50 * 3600, shortest=stall + write
    )
    interval = max(interval, step_seconds.p50)
    estimates = (
        step_seconds.scale(steps),
        machines.wait,
        START,
        machines.between,
        machines.usd_per_hour,
    )
    # There are many later waits, so their mean counts; the first wait is a separate unknown.
    later_wait = fmean(map(machines.wait.get_quantile, _compute_normal_values()[1]))
    hours, charged_hours, usd, interruptions, useful = [], [], [], [], []
    for unknowns in zip(*_compute_normal_values(), strict=True):
        pairs = zip(estimates, unknowns, strict=True)
        work, wait, begin, between, price = (
            spread.get_quantile(deviations) for spread, deviations in pairs
        )
        begin, between = begin + load, between * 3600
        share = compute_useful_share(min(interval, work), stall, later_wait + begin, between, write)
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
def _compute_normal_values() -> list[list[float]]:
    """Return equally likely standard normal values, in a different order for each unknown."""
    values = [NormalDist().inv_cdf((index + 0.5) / DRAWS) for index in range(DRAWS)]
    order = random.Random(0)  # noqa: S311 (not for security; seeded: the advice is reproducible)
    return [order.sample(values, DRAWS) for _ in range(5)]


def _estimate_checkpoint(
    machines: Machines, parameters: float, saved_bytes: float | None
) -> tuple[float, float, float]:
    """Return the seconds for which a save stops the training, those of its write, and of a load.

    All GPUs copy their shares to the host's memory while the training waits; then all nodes write
    theirs while it continues. Few speeds are published, so these are guesses.
    """
    speed = TABLE["checkpoints"]
    gigabytes = (saved_bytes or speed["bytes"] * parameters) / 1e9
    gpus = machines.count * max(machines.gpus_per_node, 1)
    return (
        gigabytes / (gpus * speed["copy"]),
        gigabytes / (machines.count * speed["write"]),
        # A checkpoint that contains only adapters is loaded with the model's 16-bit weights.
        max(gigabytes, 2 * parameters / 1e9) / (machines.count * speed["read"]),
    )
