"""Search strategies, which choose a training job's hyperparameters: Random, Grid and Bayesian.

A strategy is a function of the seed, of the job's number and of the results so far, which are in
the training jobs' records: there is no other state that a kill could lose. Hyperband searches like
Random, and :mod:`trainyard.emulator.tuning.objective_curves` stops jobs.

Bayesian is **a** Bayesian search, not AWS's, which is not published: optuna's tree-structured
Parzen estimator (TPE). It avoids training a combination twice, as far as possible.
"""

import itertools
import random
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from trainyard.emulator.tuning.search_space import (
    Categorical,
    Range,
    Space,
    Values,
    grid,
    is_in_space,
    sample,
)

if TYPE_CHECKING:
    import optuna

LABEL = "a Bayesian search (optuna's TPE), not AWS's"
ASK_ATTEMPTS, DRAW_ATTEMPTS = 3, 30
"""Number of times that Bayesian asks TPE for an untried combination, and then draws one at
random.
"""


@dataclass(frozen=True, slots=True)
class Trial:
    """A training job's hyperparameters and objective."""

    values: Values
    objective: float | None = None
    """Objective value; None while the job runs, and if it failed."""

    has_failed: bool = False


@dataclass(frozen=True, slots=True)
class Question:
    """A question to a strategy: the hyperparameters of the job ``number``, from 0."""

    space: Space
    trials: Sequence[Trial]
    """The jobs started so far."""

    minimize: bool
    seed: str
    number: int

    def chance(self, attempt: int = 0) -> random.Random:
        """Return a random generator for the seed and number, independent of the order of
        results.
        """
        return random.Random(f"{self.seed}/{self.number}/{attempt}")


def by_chance(question: Question) -> Values:
    """Random: return values uniform on each range's scale."""
    return sample(question.space, question.chance())


def in_order(question: Question) -> Values:
    """Grid: return the combination of that number."""
    return next(itertools.islice(grid(question.space), question.number, None))


def bayesian(question: Question) -> Values:
    """Bayesian: return TPE's suggestion for the results so far."""
    tried_values = [trial.values for trial in question.trials]
    for attempt in range(ASK_ATTEMPTS + DRAW_ATTEMPTS):
        chance = question.chance(attempt)
        if attempt < ASK_ATTEMPTS:
            values = _suggest_values(question, chance.getrandbits(32))
        else:
            values = sample(question.space, chance)
        if values not in tried_values:
            break
    return values


STRATEGIES: dict[str, Callable[[Question], Values]] = {
    "Bayesian": bayesian,
    "Random": by_chance,
    "Hyperband": by_chance,
    "Grid": in_order,
}


def lacking(strategy: str) -> str | None:
    """Return why the strategy does not work here, and what to do; None if it works."""
    if strategy != "Bayesian" or find_spec("optuna"):
        return None
    return (
        "Strategy 'Bayesian' needs optuna, which the emulator's Python lacks: "
        "pip install optuna, or use Strategy Random, Hyperband or Grid"
    )


def _suggest_values(question: Question, seed: int) -> Values:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
    directions = optuna.study.StudyDirection
    direction = directions.MINIMIZE if question.minimize else directions.MAXIMIZE
    study = optuna.create_study(direction=direction, sampler=sampler)
    choices = {item.name: _distribution(item) for item in question.space}
    study.add_trials(
        _as_optuna(trial, question.space, choices)
        for trial in question.trials
        if not trial.has_failed and is_in_space(question.space, trial.values)
    )
    suggestion = study.ask(choices)
    return {item.name: _value(item, suggestion.params[item.name]) for item in question.space}


def _as_optuna(
    trial: Trial, space: Space, choices: "dict[str, optuna.distributions.BaseDistribution]"
) -> "optuna.trial.FrozenTrial":
    from optuna.trial import TrialState, create_trial

    return create_trial(
        state=TrialState.RUNNING if trial.objective is None else TrialState.COMPLETE,
        value=trial.objective,
        params={item.name: _param(item, trial.values[item.name]) for item in space},
        distributions=choices,
    )


def _distribution(item: Range) -> "optuna.distributions.BaseDistribution":
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(item, Categorical):
        return CategoricalDistribution(item.values)
    if item.is_integer:
        return IntDistribution(int(item.low), int(item.high), log=item.scaling == "Logarithmic")
    return FloatDistribution(0.0, 1.0)


def _param(item: Range, value: str) -> str | float:
    """Return a value in optuna's form; a continuous one as its position on the scale."""
    if isinstance(item, Categorical):
        return value
    if item.is_integer:
        return int(value)
    unit = item.unit(value)
    assert unit is not None  # checked by within()
    return min(max(unit, 0.0), 1.0)


def _value(item: Range, param: str | float) -> str:
    if isinstance(item, Categorical) or item.is_integer:
        return str(param)
    return item.scale_unit(float(param))
