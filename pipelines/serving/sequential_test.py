"""Always-valid tests of a new model against the serving one, while both answer.

Both may be looked at after every request: the probability that an equal model is ever called worse
is at most the stated error.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

RATIOS = (1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0)
"""Ratios of the error rates, new to serving, that the alternative is a mixture of."""
FEWEST = 30
"""Values of each model that the first means are taken from, and fewest of the difference: the
bound is asymptotic."""


@dataclass(slots=True)
class ErrorTest:
    """Whether the new model's requests fail more often, by whose the failures are.

    Under the null hypothesis, an error is the new model's with at most the probability of its share
    of the requests. The likelihood ratio to a model that fails r times as often is a
    supermartingale, and so is the mean over RATIOS; by Ville's inequality it exceeds 1 / error with
    at most the probability ``error`` (Robbins 1970, "Statistical methods related to the law of the
    iterated logarithm"; Howard et al. 2021, "Time-uniform, nonparametric, nonasymptotic confidence
    sequences").
    """

    error: float
    _logs: list[float] = field(default_factory=lambda: [0.0] * len(RATIOS))

    def add(self, new: tuple[int, int], old: tuple[int, int]) -> None:
        """Add a window: (requests, errors) of the new and of the serving model."""
        if not new[0] or not old[0]:
            return
        share, total = new[0] / (new[0] + old[0]), new[1] + old[1]
        for place, ratio in enumerate(RATIOS):
            worse_share = share * ratio / (share * ratio + 1 - share)
            of_new = new[1] * math.log(worse_share / share)
            self._logs[place] += of_new + (total - new[1]) * math.log(
                (1 - worse_share) / (1 - share)
            )

    @property
    def evidence(self) -> float:
        """Return the e-value: at least 1 / ``error`` means worse."""
        highest = max(self._logs)
        if highest > 700:  # math.exp's limit
            return math.inf
        return sum(math.exp(value) for value in self._logs) / len(self._logs)

    @property
    def worse(self) -> bool:
        return self.evidence >= 1 / self.error


@dataclass(slots=True)
class Running:
    """Number, mean and squared deviations of a stream of values (Welford 1962)."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def add(self, value: float) -> None:
        self.count += 1
        before = value - self.mean
        self.mean += before / self.count
        self.squares += before * (value - self.mean)

    def radius(self, error: float, tightest: int) -> float:
        """Return the half-width of the one-sided asymptotic confidence sequence of the mean.

        Waudby-Smith, Arbour, Sinha, Kennedy, Ramdas: "Time-uniform central limit theory and
        asymptotic confidence sequences", Annals of Statistics 2024, the one-sided bound of its
        appendix. ``tightest``: number of values at which it is about the narrowest.
        """
        base = -2 * math.log(2 * error)
        rho2 = (base + math.log(base + 1)) / tightest
        spread, n = self.squares / self.count, self.count
        inside = math.log(1 + math.sqrt(n * rho2 + 1) / (2 * error))
        return math.sqrt(spread * 2 * (n * rho2 + 1) / (n * n * rho2) * inside)


@dataclass(slots=True)
class MeanTest:
    """Whether the mean of the new model's values is worse, by a confidence sequence of the
    difference.

    Each value gives an estimate of the difference whose expectation is right whatever the earlier
    means are, which only reduce its variance (augmented inverse probability weighting, as in the
    paper that ``Running.radius`` cites).
    """

    error: float
    better: str
    """``lower`` or ``higher``."""
    tightest: int = 1000
    """Number of values, of both models, at which the bound is about the narrowest."""
    new: Running = field(default_factory=Running)
    old: Running = field(default_factory=Running)
    difference: Running = field(default_factory=Running)
    _waiting: tuple[list[float], list[float]] = field(default_factory=lambda: ([], []))

    def add(self, new: Iterable[float], old: Iterable[float]) -> None:
        """Add what was answered since the last look. Values wait until both models have some."""
        sign = 1 if self.better == "lower" else -1
        new_values, old_values = self._waiting
        new_values += [sign * value for value in new]
        old_values += [sign * value for value in old]
        if not new_values or not old_values:
            return
        self._waiting = ([], [])
        share, before = (
            len(new_values) / (len(new_values) + len(old_values)),
            (self.new.mean, self.old.mean),
        )
        if min(self.new.count, self.old.count) >= FEWEST:
            for value in new_values:
                self.difference.add(before[0] - before[1] + (value - before[0]) / share)
            for value in old_values:
                self.difference.add(before[0] - before[1] - (value - before[1]) / (1 - share))
        for value in new_values:
            self.new.add(value)
        for value in old_values:
            self.old.add(value)

    @property
    def counts(self) -> tuple[int, int]:
        """Return the number of values of the new and of the serving model."""
        new_values, old_values = self._waiting
        return self.new.count + len(new_values), self.old.count + len(old_values)

    @property
    def gap(self) -> float:
        """Return the part of the difference that is beyond chance; more than 0 means worse."""
        if self.difference.count < FEWEST:
            return -math.inf
        return self.difference.mean - self.difference.radius(self.error, self.tightest)

    @property
    def worse(self) -> bool:
        return self.gap > 0
