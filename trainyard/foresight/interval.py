"""A predicted figure, with the interval in which it is expected."""

from dataclasses import dataclass


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

    def times(self, factor: float) -> "Spread":
        """Return the spread in another unit."""
        return Spread(self.p10 * factor, self.p50 * factor, self.p90 * factor)

    def inverse(self, factor: float = 1.0) -> "Spread":
        """Return ``factor`` over the figure, such as seconds per step to tokens per second."""
        return Spread(factor / self.p90, factor / self.p50, factor / self.p10)
