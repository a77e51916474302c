"""Is the useful share that is foreseen the one that interrupted trainings have?

python -m benchmarks.foresight.goodput [--trainings 0] [--seed 0] [--json FILE]

    --trainings   real ones of benchmarks.interruptions, each killed at random until it is finished

Over a grid of mean times between interruptions, restarts, saves and writes: the formula beside a
simulation that goes from event to event, and beside trainyard.foresight.runs. The real trainings
are counted in steps: a loaded machine has no seconds to trust.
"""

import heapq
import itertools
import json as json_format
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.interruptions.disturbances import kill_node_at
from benchmarks.interruptions.training import INTERVAL, STEPS, Layout, Training, write_data
from trainyard.foresight.goodput import best_interval, daly, meta_share, useful_share, young
from trainyard.foresight.runs import Market, Saving, foresee
from trainyard.foresight.spread import Spread

BETWEEN = (0.5, 1, 3, 6, 24)  # hours
RESTART = (120, 600, 2400)  # seconds
SAVE = ((60, 0), (10, 0), (2, 90))  # seconds of stall, of writing beside the training
INTERRUPTIONS = 10_000  # of the simulated run: the share is then known to about 0.002
MEAN_STEPS = 12  # of a real training, from one kill to the next
console = Console()


@dataclass(frozen=True)
class Point:
    """One place in the grid, seconds; and the shares there."""

    between: float
    restart: float
    save: float
    write: float
    interval: float
    formula: float
    events: float
    foreseen: float
    meta: float
    with_young: float
    with_daly: float


def main(
    trainings: Annotated[int, typer.Option(min=0, help="Real ones, some 10 CPU seconds each.")] = 0,
    seed: int = 0,
    json: Annotated[Path | None, typer.Option(help="Write every figure to this file.")] = None,
) -> None:
    """Exit status 1 if formula and simulation differ by more than 0.01, or a real share lies
    outside of what its training was foreseen to have."""
    points = [_point(*place, seed) for place in itertools.product(BETWEEN, RESTART, SAVE)]
    found = {"worst": {name: _worst(points, name) for name in ("events", "foreseen", "meta")}}
    found["lost_by_young"] = max(one.formula - one.with_young for one in points)
    found["lost_by_daly"] = max(one.formula - one.with_daly for one in points)
    real = _trainings(trainings, seed) if trainings else None
    _print(points, found, real)
    if json:
        known = found | {"points": [asdict(one) for one in points], "trainings": real}
        json.write_text(json_format.dumps(known, indent=1))
    inside = real is None or real["within"]
    raise typer.Exit(0 if found["worst"]["events"] <= 0.01 and inside else 1)


def _point(hours: float, restart: float, saving: tuple[float, float], seed: int) -> Point:
    between, (save, write) = hours * 3600, saving
    interval = best_interval(save, restart, between, write)

    def share(length: float) -> float:
        return useful_share(max(length, write - save), save, restart, between, write)

    return Point(
        between, restart, save, write, interval,
        formula=share(interval),
        events=_events(interval, save, restart, between, write, np.random.default_rng(seed)),
        foreseen=_foreseen(interval, save, restart, between, write, seed),
        meta=meta_share(interval, save, restart, between),
        with_young=share(young(save, between)),
        with_daly=share(daly(save, between)),
    )  # fmt: skip


def _events(
    interval: float, save: float, restart: float, between: float, write: float,
    random: np.random.Generator,
) -> float:  # fmt: skip
    """The share by a run that knows nothing of the formula: what happens next, happens."""
    clock = saved = 0.0
    for _ in range(INTERRUPTIONS):
        clock += restart
        came_from, done = saved, 0.0
        ahead = [(clock + random.exponential(between), "interrupted"), (clock + interval, "stall")]
        heapq.heapify(ahead)
        while True:
            clock, what = heapq.heappop(ahead)
            if what == "interrupted":
                break
            if what == "stall":
                done += interval
                heapq.heappush(ahead, (clock + save, "work"))
            elif what == "work":
                heapq.heappush(ahead, (clock + write, f"complete {came_from + done}"))
                heapq.heappush(ahead, (clock + interval, "stall"))
            else:
                saved = float(what.removeprefix("complete "))
    return saved / clock


def _foreseen(
    interval: float, save: float, restart: float, between: float, write: float, seed: int
) -> float:
    """That of trainyard.foresight.runs, of a long run without anything uncertain."""
    machines = Market(
        name="on demand", usd_per_hour=_sure(1), between=_sure(between / 3600), wait=_sure(0)
    )
    saving = Saving(interval=interval, stall=save, write=write)
    return foresee(
        _sure(between * 500), [machines], saving, _sure(restart), seed=seed, draws=80
    ).useful


def _sure(value: float) -> Spread:
    return Spread(value, value, value)


def _worst(points: list[Point], name: str) -> float:
    return max(abs(getattr(one, name) - one.formula) for one in points)


def _trainings(count: int, seed: int) -> dict:
    """Real trainings whose node is killed at Poisson's times, and what they were foreseen to do."""
    random = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory(prefix="goodput-") as scratch:
        write_data(Path(scratch) / "data", seed)
        made = []
        for number in range(count):
            training = Training(Path(scratch) / "data", Path(scratch) / f"{number}")
            made.append(_until_done(training, random))
            console.print(f"training {number}: steps made by its starts {made[-1]}")
    shares = [STEPS / sum(steps) for steps in made]
    foreseen = _of_steps(seed)
    low, high = np.mean(shares) - 2 * _error(shares), np.mean(shares) + 2 * _error(shares)
    return {
        "shares": shares,
        "mean": float(np.mean(shares)),
        "two_standard_errors": 2 * _error(shares),
        "foreseen": foreseen,
        "formula": useful_share(INTERVAL, 0, 0, MEAN_STEPS),
        "within": bool(low <= foreseen <= high),
    }


def _error(shares: list[float]) -> float:
    return float(np.std(shares, ddof=1) / np.sqrt(len(shares))) if len(shares) > 1 else 1.0


def _until_done(training: Training, random: np.random.Generator) -> list[int]:
    """Steps that each start made, those that were lost included."""
    made = []
    while not training.starts or training.last_step() < STEPS:
        first = training.newest_whole()
        training.start(Layout("ddp", 1))
        kill_node_at(training, first + random.exponential(MEAN_STEPS))
        made.append(training.last_step() - first)
    return made


def _of_steps(seed: int) -> float:
    """The share of a training of STEPS steps, a step an hour, that is interrupted as those are."""
    machines = Market(name="steps", usd_per_hour=_sure(1), between=_sure(MEAN_STEPS), wait=_sure(0))
    saving = Saving(interval=INTERVAL * 3600, stall=0)
    run = foresee(_sure(STEPS * 3600), [machines], saving, _sure(0), seed=seed, draws=20_000)
    return run.useful


def _print(points: list[Point], found: dict, real: dict | None) -> None:
    names = ("between h", "restart s", "save s", "write s", "interval s")
    table = Table(*names, "formula", "events", "foreseen", "Meta's")
    for one in points:
        numbers = (one.between / 3600, one.restart, one.save, one.write, one.interval)
        shares = (one.formula, one.events, one.foreseen, one.meta)
        table.add_row(*(f"{n:.4g}" for n in numbers), *(f"{share:.3f}" for share in shares))
    console.print(table)
    for name, value in found["worst"].items():
        console.print(f"formula and {name}: differ by at most {value:.4f}")
    console.print(f"lost at most by Young's interval {found['lost_by_young']:.4f}, ", end="")
    console.print(f"by Daly's {found['lost_by_daly']:.4f}")
    if real:
        console.print(
            f"real trainings: {real['mean']:.3f} ± {real['two_standard_errors']:.3f} "
            f"(two standard errors), foreseen {real['foreseen']:.3f}, formula of a run without end "
            f"{real['formula']:.3f}"
        )


if __name__ == "__main__":
    typer.run(main)
