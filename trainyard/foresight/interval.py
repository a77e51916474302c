"""A predicted figure, with the interval in which it is expected.

Apart: rooms outside of foresight show such figures.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil

DECILE = 1.2815515594457831
"""Standard deviations from the median of a normal distribution to its deciles."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A median, and the deciles around it: eight of ten outcomes lie from p10 to p90."""

    p10: float
    p50: float
    p90: float

    @classmethod
    def around(cls, value: float, low: float, high: float) -> "Spread":
        """Return a spread; ``low`` and ``high`` are the deciles as factors of ``value``."""
        return cls(value * low, value, value * high)

    @classmethod
    def from_values(cls, values: Iterable[float]) -> "Spread":
        """Return the deciles of values, without interpolation: some may be infinite."""
        sorted_values = sorted(values)
        return cls(
            *(sorted_values[ceil(share * len(sorted_values)) - 1] for share in (0.1, 0.5, 0.9))
        )

    def get_quantile(self, deviations: float) -> float:
        """Return the value that many standard deviations from the median: log-normal on either side
        of it, or normal and not below 0 where ``p10`` is 0.
        """
        side, share = (self.p10, self.p90)[deviations > 0], abs(deviations) / DECILE
        if self.p10 <= 0:
            return max(self.p50 + share * (side - self.p50), 0.0)
        return self.p50 * (side / self.p50) ** share

    def times(self, factor: float) -> "Spread":
        """Return the spread in another unit."""
        return Spread(self.p10 * factor, self.p50 * factor, self.p90 * factor)

    def inverse(self, factor: float = 1.0) -> "Spread":
        """Return ``factor`` over the figure, such as seconds per step to tokens per second."""
        return Spread(factor / self.p90, factor / self.p50, factor / self.p10)
