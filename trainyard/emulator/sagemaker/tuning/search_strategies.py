"""Search strategies, which choose the hyperparameters of training jobs: Random, Grid and Bayesian.

A strategy is a function of the seed, the job's number and the results so far. The results are in
the training jobs' records, so there is no other state that could be lost if the emulator is killed.
Hyperband searches like Random, and :mod:`trainyard.emulator.sagemaker.tuning.objective_curves`
stops its jobs.

Bayesian is **a** Bayesian search, not AWS's, which is not published: it is optuna's tree-structured
Parzen estimator (TPE). It avoids training a combination twice, as far as possible.
"""

import itertools
import math
import random
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

# The search space of a tuning job: ranges of hyperparameters, and their scales. A scale maps a
# range to 0..1, so strategies need not handle logarithms. The scales are those of the developer
# guide, "Hyperparameter Scaling". AWS does not publish which one Auto chooses. Here it is
# Logarithmic for a range above 0 that spans three orders of magnitude, and otherwise Linear.

ORDERS = 1000
"""Ratio of a range's ends from which scaling Auto is logarithmic."""

_SCALES = {
    "Linear": (lambda x: x, lambda y: y),
    "Logarithmic": (math.log, math.exp),
    "ReverseLogarithmic": (lambda x: -math.log1p(-x), lambda y: -math.expm1(-y)),
}
"""Mapping of a ScalingType to the scale's function and its inverse."""


@dataclass(frozen=True, slots=True)
class Numeric:
    """An integer or continuous range, including both ends."""

    name: str
    low: float
    high: float
    scaling: str
    """Linear, Logarithmic or ReverseLogarithmic."""

    is_integer: bool
    """Whether its values are integers."""

    def from_unit(self, unit: float) -> str:
        """Return the value, as text, at position ``unit`` (0..1) on the range's scale."""
        _, back = _SCALES[self.scaling]
        begin, end = self._compute_ends()
        value = min(max(back(begin + unit * (end - begin)), self.low), self.high)
        return str(round(value)) if self.is_integer else repr(value)

    def to_unit(self, value: str) -> float | None:
        """Return the value's position on the scale, 0..1. Return None if it is not in the range."""
        try:
            number = float(value)
        except ValueError:
            return None
        if not self.low <= number <= self.high:
            return None
        scale, _ = _SCALES[self.scaling]
        begin, end = self._compute_ends()
        return (scale(number) - begin) / (end - begin)

    def _compute_ends(self) -> tuple[float, float]:
        """Return the range's ends on the scale. An integer range is extended by 0.5 at each end, so
        that all its integers are equally likely.
        """
        scale, _ = _SCALES[self.scaling]
        room = 0.5 if self.is_integer else 0.0
        return scale(self.low - room), scale(self.high + room)


@dataclass(frozen=True, slots=True)
class Categorical:
    """A set of values without an order."""

    name: str
    values: tuple[str, ...]


Range = Numeric | Categorical
Space = tuple[Range, ...]
Values = dict[str, str]
"""Mapping of a hyperparameter's name to its value as text, as a training job gets it."""


def build_space(ranges: Mapping[str, Any]) -> Space:
    """Return the search space of the ParameterRanges of a request that has been checked."""
    return (
        *(
            _make_numeric(item, is_integer=True)
            for item in ranges.get("IntegerParameterRanges") or ()
        ),
        *(
            _make_numeric(item, is_integer=False)
            for item in ranges.get("ContinuousParameterRanges") or ()
        ),
        *(
            Categorical(item["Name"], tuple(item["Values"]))
            for item in ranges.get("CategoricalParameterRanges") or ()
        ),
    )


def _make_numeric(item: Mapping[str, Any], is_integer: bool) -> Numeric:
    low, high = float(item["MinValue"]), float(item["MaxValue"])
    scaling = item.get("ScalingType", "Auto")
    if scaling == "Auto":
        scaling = "Logarithmic" if low > 0 and high / low >= ORDERS else "Linear"
    return Numeric(item["Name"], low, high, scaling, is_integer)


def is_in_space(space: Space, values: Mapping[str, str]) -> bool:
    """Return whether ``values`` has exactly one value for each range, and all are within their
    ranges.
    """
    return set(values) == {item.name for item in space} and all(
        values[item.name] in item.values
        if isinstance(item, Categorical)
        else item.to_unit(values[item.name]) is not None
        for item in space
    )


def sample_values(space: Space, generator: random.Random) -> Values:
    """Return a random value for each range, uniform on its scale."""
    return {
        item.name: generator.choice(item.values)
        if isinstance(item, Categorical)
        else item.from_unit(generator.random())
        for item in space
    }


def iter_grid(space: Space) -> Iterator[Values]:
    """Iterate over all combinations of the categorical values."""
    choices = [item.values for item in space if isinstance(item, Categorical)]
    names = [item.name for item in space]
    return (dict(zip(names, choice, strict=True)) for choice in itertools.product(*choices))


def count_combinations(space: Space) -> int:
    """Return the number of combinations of categorical values."""
    return math.prod(len(item.values) for item in space if isinstance(item, Categorical))


if TYPE_CHECKING:
    import optuna

LABEL = "a Bayesian search (optuna's TPE), not AWS's"
ASK_ATTEMPTS, DRAW_ATTEMPTS = 3, 30
"""Number of times that Bayesian asks TPE for an untried combination, and how often it then draws
one at random.
"""


@dataclass(frozen=True, slots=True)
class Trial:
    """The hyperparameters and the objective of a training job."""

    values: Values
    objective: float | None = None
    """The objective value. None while the job runs, and if it failed."""

    has_failed: bool = False


@dataclass(frozen=True, slots=True)
class Question:
    """The input of a strategy: it must choose the hyperparameters of job ``number``, counted from
    0.
    """

    space: Space
    trials: Sequence[Trial]
    """The training jobs that were started so far."""

    minimize: bool
    seed: str
    number: int

    def make_generator(self, attempt: int = 0) -> random.Random:
        """Return a random generator that depends on the seed, the number and ``attempt``, but not
        on the order of results.
        """
        # Seeding with a string gives the same generator in each process; the string's hash would
        # not.
        return random.Random(f"{self.seed}/{self.number}/{attempt}")


def choose_random(question: Question) -> Values:
    """Random: return random values, uniform on each range's scale."""
    return sample_values(question.space, question.make_generator())


def choose_grid(question: Question) -> Values:
    """Grid: return combination number ``question.number``."""
    return next(itertools.islice(iter_grid(question.space), question.number, None))


def choose_bayesian(question: Question) -> Values:
    """Bayesian: return TPE's suggestion, or random values if it suggests only tried ones."""
    tried_values = [trial.values for trial in question.trials]
    for attempt in range(ASK_ATTEMPTS + DRAW_ATTEMPTS):
        generator = question.make_generator(attempt)
        if attempt < ASK_ATTEMPTS:
            values = _suggest_values(question, generator.getrandbits(32))
        else:
            values = sample_values(question.space, generator)
        if values not in tried_values:
            break
    return values


STRATEGIES: dict[str, Callable[[Question], Values]] = {
    "Bayesian": choose_bayesian,
    "Random": choose_random,
    "Hyperband": choose_random,
    "Grid": choose_grid,
}


def explain_missing_strategy(strategy: str) -> str | None:
    """Return why the strategy does not work here and what to do about it. Return None if it
    works.
    """
    if strategy != "Bayesian" or find_spec("optuna"):
        return None
    return (
        "Strategy 'Bayesian' needs optuna, which the emulator's Python lacks: "
        "pip install optuna, or use Strategy Random, Hyperband or Grid"
    )


def _suggest_values(question: Question, seed: int) -> Values:
    """Return TPE's suggestion, given all earlier training jobs that have not failed."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    # constant_liar counts running jobs as poor results, so that parallel jobs try different values.
    # optuna calls it experimental, hence the filter.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
    directions = optuna.study.StudyDirection
    direction = directions.MINIMIZE if question.minimize else directions.MAXIMIZE
    study = optuna.create_study(direction=direction, sampler=sampler)
    choices = {item.name: _make_distribution(item) for item in question.space}
    study.add_trials(
        _to_optuna_trial(trial, question.space, choices)
        for trial in question.trials
        if not trial.has_failed and is_in_space(question.space, trial.values)
    )
    suggestion = study.ask(choices)
    return {
        item.name: _from_optuna_value(item, suggestion.params[item.name]) for item in question.space
    }


def _to_optuna_trial(
    trial: Trial, space: Space, choices: "dict[str, optuna.distributions.BaseDistribution]"
) -> "optuna.trial.FrozenTrial":
    """Return a trial as optuna's; it counts as running while it has no objective."""
    from optuna.trial import TrialState, create_trial

    return create_trial(
        state=TrialState.RUNNING if trial.objective is None else TrialState.COMPLETE,
        value=trial.objective,
        params={item.name: _to_optuna_value(item, trial.values[item.name]) for item in space},
        distributions=choices,
    )


def _make_distribution(item: Range) -> "optuna.distributions.BaseDistribution":
    """Return optuna's distribution for a range; a continuous one is its scale, 0..1."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(item, Categorical):
        return CategoricalDistribution(item.values)
    if item.is_integer:
        return IntDistribution(int(item.low), int(item.high), log=item.scaling == "Logarithmic")
    return FloatDistribution(0.0, 1.0)


def _to_optuna_value(item: Range, value: str) -> str | float:
    """Return a value for optuna. A continuous value becomes its position on the scale."""
    if isinstance(item, Categorical):
        return value
    if item.is_integer:
        return int(value)
    unit = item.to_unit(value)
    assert unit is not None  # is_in_space() has checked it
    return min(max(unit, 0.0), 1.0)


def _from_optuna_value(item: Range, param: str | float) -> str:
    if isinstance(item, Categorical) or item.is_integer:
        return str(param)
    return item.from_unit(float(param))
