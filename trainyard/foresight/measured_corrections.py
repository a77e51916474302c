"""What was measured corrects what is foreseen: trainings that ran, and their step times.

A device's factor is what its trainings took over what was foreseen of them by the constants of the
day. Its logarithm is taken for normal: a device's own share, as uncertain as the shipped constants
are, and what differs from one training to the next. Of n trainings with mean m of the logarithms

    factor = exp(m · n·b / (n·b + e))        variance = e + b·e / (n·b + e)

where b and e are the variances of the two shares: a normal mean with a normal prior around 0
(Gelman et al., Bayesian Data Analysis, section 2.5). Both begin as half of the shipped interval's
variance; e is then estimated from the trainings' own scatter, for which the prior counts as four.
So one training moves the median by half, and several narrow the interval.
"""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field, TypeAdapter

from trainyard.common import atomic_file
from trainyard.common.errors import ForesightError
from trainyard.foresight.interval import Spread
from trainyard.foresight.model_shapes import Shapes
from trainyard.foresight.setting import Setting
from trainyard.foresight.step_time import Time, foresee

PLACE = Path(".trainyard/calibration.json")
"""Where measured trainings are kept, in the working directory."""

FORMAT = 1
DECILE = 1.2815515594457831
"""Standard deviations from the median of a normal distribution to its deciles."""

PRIOR = 4
"""Trainings that the shipped scatter counts as."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One training that ran."""

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")
    job: str
    """ARN or name of its training job: a job counts once."""

    setting: Setting
    step_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    """Of an optimizer step: the median of those that it logged."""

    lines: Annotated[int, Field(ge=1)]
    """Metric lines of which that is the median."""


@dataclass(frozen=True, slots=True)
class Pair:
    """What a training took, and what was foreseen of it by the shipped constants."""

    measured: float
    shipped: Spread

    @property
    def log_ratio(self) -> float:
        return math.log(self.measured / self.shipped.p50)


def factor(pairs: Sequence[Pair], shipped: Spread) -> Spread:
    """By what to multiply the median that is foreseen, and where its deciles come to lie.

    Args:
        pairs: of the same device.
        shipped: the interval that the constants give by themselves; its width is the prior's.
    """
    prior = (math.log(shipped.p90 / shipped.p10) / (2 * DECILE)) ** 2
    between = apart = prior / 2
    if not pairs:
        return Spread(shipped.p10 / shipped.p50, 1.0, shipped.p90 / shipped.p50)
    ratios, n = [pair.log_ratio for pair in pairs], len(pairs)
    mean = math.fsum(ratios) / n
    scatter = math.fsum((ratio - mean) ** 2 for ratio in ratios)
    apart = (PRIOR * apart + scatter) / (PRIOR + n - 1)
    weight = n * between / (n * between + apart) if between else 0.0
    half = DECILE * math.sqrt(apart + between * (1 - weight))
    median = math.exp(weight * mean)
    return Spread.around(median, math.exp(-half), math.exp(half))


@dataclass(frozen=True)
class Calibration:
    """Trainings that were measured, and what follows from them."""

    trainings: tuple[Measured, ...] = ()

    def time(self, setting: Setting, shapes: Shapes | None = None) -> Time:
        """Foresee as ``step_time.foresee`` does, corrected by what its device was measured at."""
        shipped = foresee(setting, shapes)
        step = self.adjusted(setting, shipped.step_seconds)
        slower = step.p50 / shipped.step_seconds.p50
        return replace(
            shipped,
            step_seconds=step,
            parts={name: seconds * slower for name, seconds in shipped.parts.items()},
            tokens_per_second_per_gpu=step.inverse(setting.tokens / setting.gpus),
            mfu=shipped.mfu / slower,
        )

    def adjusted(self, setting: Setting, shipped: Spread) -> Spread:
        """Seconds of a step, of which the constants give ``shipped``."""
        pairs = self._pairs.get(setting.gpu, [])
        if not pairs:
            return shipped
        return factor(pairs, shipped).times(shipped.p50)

    def count(self, gpu: str) -> int:
        """Trainings on the device."""
        return len(self._pairs.get(gpu, []))

    @cached_property
    def _pairs(self) -> dict[str, list[Pair]]:
        """Device → its trainings, as the constants of today foresee them."""
        found: dict[str, list[Pair]] = {}
        for each in self.trainings:
            shipped = foresee(each.setting).step_seconds
            found.setdefault(each.setting.gpu, []).append(Pair(each.step_seconds, shipped))
        return found

    def with_trainings(self, more: Iterable[Measured]) -> "Calibration":
        """These and ``more``; of the same job, the later one counts."""
        every = {each.job: each for each in (*self.trainings, *more)}
        return Calibration(tuple(every.values()))

    def write(self, place: Path = PLACE) -> None:
        """Keep it, whole or not at all.

        Raises:
            ForesightError: the file cannot be written.
        """
        trainings = [_TREE.dump_python(each, mode="json") for each in self.trainings]
        text = json.dumps({"format": FORMAT, "trainings": trainings}, indent=1) + "\n"
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            atomic_file.write(place, text)
        except OSError as error:
            raise ForesightError(f"{place}: the calibration cannot be written: {error}") from None


_TREE = TypeAdapter(Measured)


def read(place: Path = PLACE) -> Calibration:
    """What was measured so far; nothing where there is no such file.

    Raises:
        ForesightError: the file is no calibration of this format.
    """
    try:
        tree: Any = json.loads(place.read_text(encoding="utf-8"))
        if tree["format"] != FORMAT:
            raise ValueError(f"format {tree['format']}, expected {FORMAT}")
        return Calibration(tuple(map(_TREE.validate_python, tree["trainings"])))
    except FileNotFoundError:
        return Calibration()
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ForesightError(
            f"{place}: is no calibration ({str(error).splitlines()[0]}); move it away, and "
            "calibrate again"
        ) from None
