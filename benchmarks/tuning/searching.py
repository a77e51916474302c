"""Regret by the number of trials: our strategies, and optuna without us."""

import random
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks.tuning.tables import Table
from trainyard.emulator.tuning.search_space import Categorical
from trainyard.emulator.tuning.search_strategies import STRATEGIES, Question, Trial

Key = tuple[int, ...]
Asked = Iterator[Key]


@dataclass(frozen=True, slots=True)
class Search:
    """One search of one table."""

    regrets: np.ndarray
    """Regret of the incumbent after each trial: of the configuration with the best answer."""

    milliseconds: float
    """For a suggestion, on average."""


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
