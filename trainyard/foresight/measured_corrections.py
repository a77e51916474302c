"""Correct predictions by the step times that were measured in training runs.

The factor of a device is the measured time of its runs divided by the time that the current
constants predict. Its logarithm is assumed to be the sum of two normal shares: one of the device,
which is as uncertain as the shipped constants are, and one that differs from run to run.
For n runs whose logarithms have the mean m

    factor = exp(m · n·b / (n·b + e))        variance = e + b·e / (n·b + e)

where b and e are the variances of the two shares: a normal mean with a normal prior around 0
(Gelman et al., Bayesian Data Analysis, section 2.5). Both start as half of the variance of the
shipped interval; e is then estimated from the scatter of the runs, for which the prior counts
as four runs. So one run moves the median by half, and several narrow the interval.
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
from trainyard.foresight.interval import DECILE, Spread
from trainyard.foresight.setting import Setting
from trainyard.foresight.step_time import Time, predict_step_time
from trainyard.foresight.transformer_formulas import Shapes

PLACE = Path(".trainyard/calibration.json")
"""File of the measured runs, relative to the working directory."""

FORMAT = 1
PRIOR = 4
"""Number of runs that the prior of the scatter counts as."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """A training run whose step time was measured."""

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")
    job: str
    """ARN or name of the training job; each job counts once."""

    setting: Setting
    step_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    """Seconds per optimizer step: the median of the steps in the job's log."""

    lines: Annotated[int, Field(ge=1)]
    """Number of metric lines in the log from which the median was computed."""


def estimate_factor(ratios: Sequence[float], baseline: Spread) -> Spread:
    """Return the factor by which to multiply the predicted median, with its deciles.

    Args:
        ratios: logarithms of measured over predicted time, of runs on the same device.
        baseline: interval that the constants alone give; its width is that of the prior.
    """
    prior = (math.log(baseline.p90 / baseline.p10) / (2 * DECILE)) ** 2
    between = run_variance = prior / 2
    n = len(ratios)
    mean = math.fsum(ratios) / n
    scatter = math.fsum((ratio - mean) ** 2 for ratio in ratios)
    run_variance = (PRIOR * run_variance + scatter) / (PRIOR + n - 1)
    weight = n * between / (n * between + run_variance) if between else 0.0
    half = DECILE * math.sqrt(run_variance + between * (1 - weight))
    median = math.exp(weight * mean)
    return Spread.from_median(median, math.exp(-half), math.exp(half))


@dataclass(frozen=True)
class Calibration:
    """Measured training runs, and the corrections that follow from them."""

    trainings: tuple[Measurement, ...] = ()

    def predict_time(self, setting: Setting, shapes: Shapes | None = None) -> Time:
        """Predict the step time, corrected by the measurements on the device."""
        baseline = predict_step_time(setting, shapes)
        step = self.adjust_time(setting, baseline.step_seconds)
        slower = step.p50 / baseline.step_seconds.p50
        return replace(
            baseline,
            step_seconds=step,
            parts={name: seconds * slower for name, seconds in baseline.parts.items()},
            tokens_per_second_per_gpu=step.invert(setting.tokens / setting.gpus),
            mfu=baseline.mfu / slower,
        )

    def adjust_time(self, setting: Setting, baseline: Spread) -> Spread:
        """Return the corrected seconds per step; ``baseline`` is the constants' prediction."""
        ratios = self._ratios.get(setting.gpu)
        return estimate_factor(ratios, baseline).scale(baseline.p50) if ratios else baseline

    def count_runs(self, gpu: str) -> int:
        """Return the number of measured runs on the device."""
        return len(self._ratios.get(gpu, []))

    @cached_property
    def _ratios(self) -> dict[str, list[float]]:
        """Mapping of a device to the logarithms of measured over predicted time of its runs.

        The predictions are those of the current constants.
        """
        ratios: dict[str, list[float]] = {}
        for training in self.trainings:
            ratio = math.log(
                training.step_seconds / predict_step_time(training.setting).step_seconds.p50
            )
            ratios.setdefault(training.setting.gpu, []).append(ratio)
        return ratios

    def with_trainings(self, more: Iterable[Measurement]) -> "Calibration":
        """Return these runs and ``more``; if both contain a job, that of ``more`` counts."""
        every = {training.job: training for training in (*self.trainings, *more)}
        return Calibration(tuple(every.values()))

    def write(self, path: Path = PLACE) -> None:
        """Write the calibration file atomically: completely or not at all.

        Raises:
            ForesightError: the file cannot be written.
        """
        trainings = [_TREE.dump_python(training, mode="json") for training in self.trainings]
        text = json.dumps({"format": FORMAT, "trainings": trainings}, indent=1) + "\n"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic_file.write_file(path, text)
        except OSError as error:
            raise ForesightError(f"{path}: the calibration cannot be written: {error}") from None


_TREE = TypeAdapter(Measurement)


def read_measured_runs(path: Path = PLACE) -> Calibration:
    """Return the measured runs in the file; none if the file does not exist.

    Raises:
        ForesightError: the file is not a calibration of this format.
    """
    try:
        tree: Any = json.loads(path.read_text(encoding="utf-8"))
        if tree["format"] != FORMAT:
            raise ValueError(f"format {tree['format']}, expected {FORMAT}")
        return Calibration(tuple(map(_TREE.validate_python, tree["trainings"])))
    except FileNotFoundError:
        return Calibration()
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ForesightError(
            f"{path}: is not a calibration ({str(error).splitlines()[0]}); move it away, and "
            "calibrate again"
        ) from None
