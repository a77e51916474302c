"""Predict a whole training on given machines: from a step's time to its end and its cost."""

from dataclasses import dataclass

from trainyard.foresight.cloud_machines import PATIENCE, TABLE, How, Machines, start
from trainyard.foresight.interrupted_run import DRAWS, Market, Outcome, Saving, best_interval
from trainyard.foresight.interrupted_run import foresee as simulate
from trainyard.foresight.interval import Spread


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """A training from its first wait for machines to its last checkpoint."""

    outcome: Outcome
    saving: Saving
    """Saving at the given interval, or at the best one for the machines' median."""

    start_seconds: Spread
    """Seconds from the machines to the first new step, the checkpoint's load included."""

    markets: tuple[Market, ...]


def foresee(
    machines: Machines,
    how: How,
    parameters: float,
    step_seconds: Spread,
    steps: int,
    *,
    interval_seconds: float | None = None,
    saved_bytes: float | None = None,
    patience: float = PATIENCE,
    seed: int = 0,
    draws: int = DRAWS,
) -> Whole:
    """Predict when ``steps`` steps are done, and what they cost.

    Args: parameters: parameters of the model; the checkpoint's size follows from them.
        interval_seconds: seconds of training between saves; if left out, the best one as if a save
        stopped the training until it is written. No source says what a write beside the training
        costs; if it were free, saves would be advised every few seconds. No shorter than a step or
        a save. saved_bytes: bytes of a checkpoint, all ranks together, if known better.

    Raises:
        ForesightError: the machines have no price.
    """
    markets = machines.markets(how, patience)
    stall, write, load = _checkpoint(machines, parameters, saved_bytes)
    starts = start()
    starts = Spread(starts.p10 + load, starts.p50 + load, starts.p90 + load)
    first = markets[0]
    takes = stall + write
    interval = interval_seconds or best_interval(
        takes,
        first.wait.p50 + starts.p50,
        first.between.p50 * 3600,
        shortest=max(step_seconds.p50, takes),
    )
    saving = Saving(interval=max(interval, step_seconds.p50), stall=stall, write=write)
    work = step_seconds.times(steps)
    outcome = simulate(work, markets, saving, starts, seed=seed, draws=draws)
    return Whole(outcome=outcome, saving=saving, start_seconds=starts, markets=tuple(markets))


def _checkpoint(
    machines: Machines, parameters: float, saved_bytes: float | None
) -> tuple[float, float, float]:
    """Return the seconds of a save that stop the training, those written beside it, and those of a
    load.

    A checkpoint that has only adapters is loaded with the weights in 16 bits. All GPUs copy their
    shares to the host's memory while the training waits, all nodes write theirs while it continues;
    published speeds are few, and these are guesses.
    """
    speed = TABLE["checkpoints"]
    gigabytes = (saved_bytes or speed["bytes"] * parameters) / 1e9
    gpus = machines.count * max(machines.gpus_per_node, 1)
    return (
        gigabytes / (gpus * speed["copy"]),
        gigabytes / (machines.count * speed["write"]),
        max(gigabytes, 2 * parameters / 1e9) / (machines.count * speed["read"]),
    )
