"""A figure that is foreseen, with the interval that it is expected in."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spread:
    """A median, and the deciles around it: eight of ten outcomes lie from p10 to p90."""

    p10: float
    p50: float
    p90: float

    @classmethod
    def around(cls, value: float, low: float, high: float) -> "Spread":
        """``low`` and ``high``: the deciles as factors of ``value``."""
        return cls(value * low, value, value * high)

    def times(self, factor: float) -> "Spread":
        """The same in another unit."""
        return Spread(self.p10 * factor, self.p50 * factor, self.p90 * factor)

    def inverse(self, factor: float = 1.0) -> "Spread":
        """``factor`` over the figure: seconds a step to tokens a second."""
        return Spread(factor / self.p90, factor / self.p50, factor / self.p10)
