"""A predicted figure with the interval in which it is expected.

This is a separate module because packages other than ``foresight`` also show such figures, so they
import this module alone.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil

DECILE = 1.2815515594457831
"""Distance from the median of a normal distribution to its deciles, in standard deviations."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A median and the deciles around it: eight of ten outcomes are between p10 and p90."""

    p10: float
    p50: float
    p90: float

    @classmethod
    def from_median(cls, value: float, low: float, high: float) -> "Spread":
        """Return a spread around ``value``; ``low`` and ``high`` are the deciles divided by it."""
        return cls(value * low, value, value * high)

    @classmethod
    def from_values(cls, values: Iterable[float]) -> "Spread":
        """Return the deciles of values without interpolation, because some may be infinite."""
        sorted_values = sorted(values)
        return cls(
            *(sorted_values[ceil(share * len(sorted_values)) - 1] for share in (0.1, 0.5, 0.9))
        )

    def get_quantile(self, deviations: float) -> float:
        """Return the value at this number of standard deviations from the median.

        The distribution is log-normal on either side of the median. If ``p10`` is 0, it is normal,
        and values below 0 become 0.
        """
        decile, share = (self.p10, self.p90)[deviations > 0], abs(deviations) / DECILE
        if self.p10 <= 0:
            return max(self.p50 + share * (decile - self.p50), 0.0)
        return self.p50 * (decile / self.p50) ** share

    def scale(self, factor: float) -> "Spread":
        """Return the spread multiplied by ``factor``, for example to convert it to another unit."""
        return Spread(self.p10 * factor, self.p50 * factor, self.p90 * factor)

    def invert(self, factor: float = 1.0) -> "Spread":
        """Return ``factor`` divided by the spread, such as tokens per second for seconds."""
        return Spread(factor / self.p90, factor / self.p50, factor / self.p10)
