"""Predict a training's run: when it is finished and what it costs, interruptions included.

The run is simulated many times. Its unknowns (the work, the start, the mean time between
interruptions, the price) are drawn once for each simulated run from their spread, and stay; the
times of the interruptions, and each wait for machines, are drawn anew. A run may fall back: once a
wait on a market is longer than its patience, the rest is done on the next market.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

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
    if cycle + write / between > 700:  # e^700 is nearly the largest float: nothing is ever saved
        return 0.0
    return interval * math.exp(-write / between) / ((between + restart) * math.expm1(cycle))


def best_interval(
    save: float, restart: float, between: float, write: float = 0.0, shortest: float = 0.0
) -> float:
    """Return the interval with the largest useful share: between · (1 + W(−e^(−1 − save/between))).

    W is Lambert's function, found by Newton's steps on −u − ln(1 − u) = save/between for
    u = interval/between, from the right, where they cannot miss the root. ``restart`` does not
    matter: it costs the same whatever the interval is.

    Args:
        write: see :func:`useful_share`; a save does not begin before the previous one is written.
        shortest: lower bound of the interval, such as one step.
    """
    if save < 0 or between <= 0:
        raise ValueError(f"save {save}, between {between}: expected 0 or more, and more than 0")
    least = max(shortest, write - save)
    cost = save / between
    if cost == 0:  # a save that costs nothing is done as often as possible
        return least
    if cost > 30:  # 1 − u = e^(−1 − cost) and less is below what floats resolve
        return max(between, least)
    share = min(math.sqrt(2 * cost), -math.expm1(-1 - cost))
    for _ in range(STEPS):
        share -= (-share - math.log1p(-share) - cost) * (1 - share) / share
    return max(share * between, least)


DECILE = 1.2815515594457831
"""Standard deviations from a normal distribution's median to its deciles."""

DRAWS = 400
"""Simulated runs: a decile is then that of some distribution whose true share is 7 to 13 %."""

PIECE = 64
"""Interruptions per run that are drawn at once."""

MANY = 1000
"""Number of interruptions from which a run's own luck no longer counts (it is some 3 %). A run with
more is not simulated: it takes as long as its useful share says. Where another market is left, the
run moves to it after this many."""

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """The training's checkpoint times, in seconds."""

    interval: float
    """Seconds of work from one save to the next."""

    stall: float
    """Seconds that a save stops the training."""

    write: float = 0.0
    """Seconds from the stall's end until the checkpoint is complete, beside the training."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Market:
    """A way to buy the machines."""

    name: str
    """Name: ``on demand``, ``spot``."""

    usd_per_hour: Spread
    """Price of all machines together; charged once they are there, not during the wait for them."""

    between: Spread
    """Mean hours of running from one interruption of the whole job to the next."""

    wait: Spread
    """Seconds until all machines are there, at the start and after each interruption."""

    patience: float = math.inf
    """Seconds of waiting after which the run moves to the next market, for good."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Time and cost of a run; ``inf`` hours and USD if it would never finish."""

    hours: Spread
    """Hours from the first wait until the last save is complete."""

    usd: Spread
    interruptions: Spread
    useful: float
    """The work's share of the hours, on average."""

    finished: float
    """Share of the simulated runs that finish."""

    fell_back: float
    """Share of the simulated runs that left the first market."""


@dataclass(slots=True)
class _Runs:
    """The simulated runs; arrays of one value per run, in seconds."""

    work: Array
    start: Array
    left: Array
    elapsed: Array
    usd: Array
    interruptions: Array
    moved: NDArray[np.bool_]
    active: NDArray[np.int64] = field(init=False)
    """Numbers of the runs that continue on this market."""

    def __post_init__(self) -> None:
        self.active = np.arange(len(self.work))


def foresee(
    work_seconds: Spread,
    markets: Sequence[Market],
    saving: Saving,
    start_seconds: Spread,
    *,
    seed: int = 0,
    draws: int = DRAWS,
) -> Outcome:
    """Predict time and cost of a training whose work takes ``work_seconds`` without disturbances.

    Args:
        markets: used in this order; the last one's patience is endless.
        start_seconds: from the machines to the first new step: image, data, checkpoint. The
            machines are charged for it.
        seed: the same seed gives the same outcome.
    """
    if saving.interval <= 0 or not markets:
        raise ValueError(
            f"interval {saving.interval}: expected more than 0 seconds; {len(markets)} markets: "
            "expected one or more"
        )
    random = np.random.default_rng(seed)
    work, start = sample(work_seconds, random, draws), sample(start_seconds, random, draws)
    zero = np.zeros(draws)
    runs = _Runs(
        work, start, work.copy(), zero, zero.copy(), zero.copy(), np.zeros(draws, dtype=bool)
    )
    for number, market in enumerate(markets):
        patience = market.patience if number < len(markets) - 1 else math.inf
        _on(runs, market, patience, saving, random)
        runs.moved[runs.active] = True  # none after the last
    return _outcome(runs)


def sample(spread: Spread, random: np.random.Generator, count: int | tuple[int, int]) -> Array:
    """Return values with the spread's median and deciles: log-normal on either side of the median,
    or normal and not below 0 where the lower decile is 0.
    """
    normal = random.standard_normal(count) / DECILE
    if spread.p10 <= 0:
        side = np.where(normal < 0, spread.p50 - spread.p10, spread.p90 - spread.p50)
        return np.maximum(spread.p50 + normal * side, 0.0)
    low, high = math.log(spread.p50 / spread.p10), math.log(spread.p90 / spread.p50)
    return spread.p50 * np.exp(normal * np.where(normal < 0, low, high))


def _on(
    runs: _Runs, market: Market, patience: float, saving: Saving, random: np.random.Generator
) -> None:
    """Continue the active runs on a market; the runs that leave it become the active ones."""
    between = sample(market.between, random, len(runs.work)) * 3600
    usd_per_second = sample(market.usd_per_hour, random, len(runs.work)) / 3600
    if patience == math.inf:
        _steady(runs, between, usd_per_second, sample(market.wait, random, MANY).mean(), saving)
    left_it = [np.empty(0, dtype=np.int64)]
    here = np.zeros(len(runs.work))
    while (now := runs.active).size:
        up = random.exponential(size=(now.size, PIECE)) * between[now, None]
        wait = sample(market.wait, random, up.shape)
        kept, need = _progress(up, runs.left[now, None], saving)
        leaves = wait > patience
        last, leaving, ending = _first(leaves, ~leaves & (up >= need))
        before = np.arange(PIECE) < last[:, None]  # pieces that were interrupted
        at_end = (np.arange(PIECE) == last[:, None]) & ending[:, None]
        charged = np.where(before, up, 0.0).sum(1) + np.where(at_end, need, 0.0).sum(1)
        charged += (before.sum(1) + ending) * runs.start[now]
        waited = np.where(before | at_end, wait, 0.0).sum(1) + np.where(leaving, patience, 0.0)
        runs.elapsed[now] += charged + waited
        runs.usd[now] += charged * usd_per_second[now]
        here[now] += before.sum(1)
        runs.left[now] = np.where(ending, 0.0, runs.left[now] - np.where(before, kept, 0.0).sum(1))
        leaving |= ~ending & (here[now] >= MANY) & (patience < math.inf)
        left_it.append(now[leaving])
        runs.active = now[~leaving & ~ending]
    runs.interruptions += here
    runs.active = np.concatenate(left_it)


def _steady(
    runs: _Runs, between: Array, usd_per_second: Array, wait: float, saving: Saving
) -> None:
    """Account for all active runs that would have many interruptions, at once."""
    for run in runs.active:
        start, left = float(runs.start[run]), float(runs.left[run])
        share = useful_share(
            saving.interval, saving.stall, wait + start, float(between[run]), saving.write
        )
        life = float(between[run]) + wait + start
        if left < MANY * share * life:
            continue
        count = left / share / life if share else math.inf
        runs.elapsed[run] += count * life
        runs.usd[run] += count * (life - wait) * usd_per_second[run]
        runs.interruptions[run] += count
        runs.left[run] = 0.0
    runs.active = runs.active[runs.left[runs.active] > 0]


def _progress(up: Array, left: Array, saving: Saving) -> tuple[Array, Array]:
    """Return, for each time between a restart and an interruption, the saved work, and how long the
    time would have to be to finish, the last save included.
    """
    kept = np.floor(np.maximum(up - saving.write, 0) / (saving.interval + saving.stall))
    kept *= saving.interval
    to_do = left - (np.cumsum(kept, axis=1) - kept)
    return kept, to_do + np.ceil(to_do / saving.interval) * saving.stall + saving.write


def _first(
    leaves: NDArray[np.bool_], ends: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.bool_]]:
    """Return where each row leaves or ends first (or its length), and which of both it does."""
    either = leaves | ends
    some, first = either.any(axis=1), either.argmax(axis=1)
    leaving = some & leaves[np.arange(len(first)), first]
    return np.where(some, first, either.shape[1]), leaving, some & ~leaving


def _outcome(runs: _Runs) -> Outcome:
    return Outcome(
        hours=_spread(runs.elapsed / 3600),
        usd=_spread(runs.usd),
        interruptions=_spread(runs.interruptions),
        useful=float((runs.work / runs.elapsed).mean()),
        finished=float(np.isfinite(runs.elapsed).mean()),
        fell_back=float(runs.moved.mean()),
    )


def _spread(values: Array) -> Spread:
    """Return the deciles of simulated values, without interpolating: some values are infinite."""
    low, middle, high = np.quantile(values, (0.1, 0.5, 0.9), method="inverted_cdf")
    return Spread(float(low), float(middle), float(high))
