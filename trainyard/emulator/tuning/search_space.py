"""The search space of a tuning job: ranges of hyperparameters, and their scales.

A scale maps a range to 0..1, so strategies need not know about logarithms. The scales are those of
the developer guide, "Hyperparameter Scaling". AWS does not publish which one Auto chooses; here it
is Logarithmic for a range above 0 that spans three orders of magnitude, else Linear.
"""

import itertools
import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

ORDERS = 1000
"""Ratio of a range's ends from which scaling Auto is logarithmic."""

_SCALES = {
    "Linear": (lambda x: x, lambda y: y),
    "Logarithmic": (math.log, math.exp),
    "ReverseLogarithmic": (lambda x: -math.log1p(-x), lambda y: -math.expm1(-y)),
}
"""ScalingType → scale and its inverse."""


@dataclass(frozen=True, slots=True)
class Numeric:
    """An integer or continuous range, both ends included."""

    name: str
    low: float
    high: float
    scaling: str
    """Linear, Logarithmic or ReverseLogarithmic."""

    is_integer: bool
    """True if its values are integers."""

    def scale_unit(self, unit: float) -> str:
        """Return the value at ``unit`` (0..1) on the range's scale."""
        _, back = _SCALES[self.scaling]
        begin, end = self._ends()
        value = min(max(back(begin + unit * (end - begin)), self.low), self.high)
        return str(round(value)) if self.is_integer else repr(value)

    def unit(self, value: str) -> float | None:
        """Return the value's position on the scale, 0..1; None if it is not in the range."""
        try:
            number = float(value)
        except ValueError:
            return None
        if not self.low <= number <= self.high:
            return None
        scale, _ = _SCALES[self.scaling]
        begin, end = self._ends()
        return (scale(number) - begin) / (end - begin)

    def _ends(self) -> tuple[float, float]:
        """Return the ends on the scale; integers get half a unit on each side, so that all are
        equally likely.
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
"""Name → value, as a training job gets them."""


def space_of(ranges: Mapping[str, Any]) -> Space:
    """Return the space of a checked request's ParameterRanges."""
    return (
        *(_numeric(item, is_integer=True) for item in ranges.get("IntegerParameterRanges") or ()),
        *(
            _numeric(item, is_integer=False)
            for item in ranges.get("ContinuousParameterRanges") or ()
        ),
        *(
            Categorical(item["Name"], tuple(item["Values"]))
            for item in ranges.get("CategoricalParameterRanges") or ()
        ),
    )


def _numeric(item: Mapping[str, Any], is_integer: bool) -> Numeric:
    low, high = float(item["MinValue"]), float(item["MaxValue"])
    scaling = item.get("ScalingType", "Auto")
    if scaling == "Auto":
        scaling = "Logarithmic" if low > 0 and high / low >= ORDERS else "Linear"
    return Numeric(item["Name"], low, high, scaling, is_integer)


def is_in_space(space: Space, values: Mapping[str, str]) -> bool:
    """Return whether there is exactly one value for each range, within it."""
    return set(values) == {item.name for item in space} and all(
        values[item.name] in item.values
        if isinstance(item, Categorical)
        else item.unit(values[item.name]) is not None
        for item in space
    )


def sample(space: Space, chance: random.Random) -> Values:
    """Return a random value for each range, uniform on its scale."""
    return {
        item.name: chance.choice(item.values)
        if isinstance(item, Categorical)
        else item.scale_unit(chance.random())
        for item in space
    }


def grid(space: Space) -> Iterator[Values]:
    """Iterate over all combinations of the categories."""
    choices = [item.values for item in space if isinstance(item, Categorical)]
    names = [item.name for item in space]
    return (dict(zip(names, choice, strict=True)) for choice in itertools.product(*choices))


def size(space: Space) -> int:
    """Return the number of combinations of categories."""
    return math.prod(len(item.values) for item in space if isinstance(item, Categorical))
