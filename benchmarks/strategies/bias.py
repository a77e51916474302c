"""Whether one curve lies above or below another, beyond what rounding scatters."""

from collections.abc import Mapping
from dataclasses import dataclass

BATCHES = 10
LARGEST = 4.3
"""Standard errors that a mean may be off zero: with nine degrees of freedom one in 500 is further
off by chance (Student's t), and some 25 layouts are compared."""


@dataclass(frozen=True, slots=True)
class Bias:
    """The mean signed relative difference of a curve's losses, and its standard error."""

    mean: float
    error: float

    @property
    def found(self) -> bool:
        """Whether it is more than chance."""
        return abs(self.mean) > LARGEST * self.error

    def __str__(self) -> str:
        return f"{self.mean:+.0e} ± {self.error:.0e}"


def bias(curve: Mapping[int, float], reference: Mapping[int, float]) -> Bias:
    """Of ``curve`` against ``reference``, which have the same steps, at least ten.

    A step's difference is like that of the step before it, so the steps are no independent
    observations: the error is that of ten means of steps in a row (batch means; Law & Kelton,
    Simulation Modeling and Analysis, section 9.5.3).
    """
    steps = sorted(reference)
    off = [curve[step] / reference[step] - 1 for step in steps]
    size = len(off) // BATCHES
    means = [sum(off[n * size : (n + 1) * size]) / size for n in range(BATCHES)]
    middle = sum(means) / BATCHES
    variance = sum((one - middle) ** 2 for one in means) / (BATCHES - 1)
    return Bias(sum(off) / len(off), (variance / BATCHES) ** 0.5)
