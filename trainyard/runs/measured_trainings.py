"""Learn from trainings that ran: one execution's, or those of all pipelines of the account."""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainyard.common.errors import ForesightError
from trainyard.foresight import measured_corrections
from trainyard.foresight.interval import Spread
from trainyard.foresight.measured_corrections import PLACE, Calibration, Measurement
from trainyard.foresight.setting import Setting
from trainyard.foresight.step_time import foresee
from trainyard.runs.execution import Execution, Step, all_executions
from trainyard.runs.metric_lines import definitions, given_up

METRIC = "step_seconds"
FIRST = 1
"""Number of first lines that do not count: kernels are chosen and compiled then."""

SettingOf = Callable[[Mapping[str, Any]], Setting]
"""DescribeTrainingJob's answer → the setting; raises ForesightError if it is unknown."""


def measure_trainings(execution: Execution, setting_of: SettingOf) -> Iterator[Measurement | str]:
    """Iterate over each training of an execution, or the reason why it does not count.

    Raises:
        ServiceError: the execution does not exist, or AWS cannot be reached.
    """
    for step in execution.steps():
        if step.job and step.job[0] == "TrainingJob" and step.status == "Succeeded":
            job = execution.training_job(step.job[1])
            try:
                yield _make_measurement(job, setting_of(job), seconds(execution, step, job))
            except ForesightError as error:
                yield f"{step.job[1]}: {error}"


def seconds(execution: Execution, step: Step, job: Mapping[str, Any]) -> list[float]:
    """Return the seconds per optimizer step, in the order in which the job logged them.

    Raises:
        ForesightError: the metric's expression takes too long.
    """
    metrics = [definition for definition in definitions(job) if definition.name.endswith(METRIC)][
        :1
    ]
    readings = (metric.value(line) for metric in metrics for line in execution.all_lines(step))
    values = [value for value in readings if value is not None]
    if given_up(metrics):
        raise ForesightError(given_up(metrics)[0])
    return values


def _make_measurement(
    job: Mapping[str, Any], setting: Setting, seconds: list[float]
) -> Measurement:
    later = [value for value in seconds[FIRST:] if value > 0]
    if not later:
        raise ForesightError(
            f"it logged {len(seconds)} times of {METRIC}, and the first one does not count; log "
            "more often (train.loop.log_interval)"
        )
    return Measurement(
        job=job["TrainingJobArn"],
        setting=setting,
        step_seconds=statistics.median(later),
        lines=len(later),
    )


ALL = "all"
"""Word for every execution."""


def calibrate(
    which: str, setting_of: SettingOf, region: str | None = None, place: Path = PLACE
) -> Iterator[str]:
    """Add the trainings of an execution, or of ``all``, to the calibration; yield a report.

    The file is written before the first line is yielded.

    Raises:
        ForesightError: no training counts; says why not.
        ServiceError: the execution does not exist, or AWS cannot be reached.
    """
    before = measured_corrections.read(place)
    arns = all_executions(region) if which == ALL else [which]
    outcomes = [
        line for arn in arns for line in measure_trainings(Execution(arn, region), setting_of)
    ]
    measurements = [item for item in outcomes if isinstance(item, Measurement)]
    left_out = list(dict.fromkeys(item for item in outcomes if isinstance(item, str)))
    if not measurements:
        reason = "; ".join(left_out) or "it has no training that succeeded"
        raise ForesightError(f"--calibrate {which}: nothing to learn from: {reason}")
    after = before.with_trainings(measurements)
    after.write(place)
    yield from _report(measurements, left_out, before, after)
    yield f"kept in {place}, which plan, advise, watch and report read"


def _report(
    measurements: Sequence[Measurement],
    left_out: Sequence[str],
    before: Calibration,
    after: Calibration,
) -> Iterator[str]:
    for measurement in {item.job: item for item in measurements}.values():
        baseline = foresee(measurement.setting).step_seconds
        yield (
            f"{measurement.job.rpartition('/')[2]}: {measurement.step_seconds:.3g} s a step on "
            f"{measurement.setting.gpus} "
            f"× {measurement.setting.gpu} ({measurement.lines} lines), "
            f"{measurement.step_seconds / baseline.p50:.2f} times "
            f"the shipped {baseline.p50:.3g} s"
        )
    yield from (f"left out: {line}" for line in left_out)
    for gpu in dict.fromkeys(item.setting.gpu for item in measurements):
        example = next(item.setting for item in measurements if item.setting.gpu == gpu)
        baseline = foresee(example).step_seconds
        then, now = (
            _factor(calibration.adjust_time(example, baseline), baseline)
            for calibration in (before, after)
        )
        yield f"{gpu}, {after.count(gpu)} trainings: foreseen times {then} before, {now} now"


def _factor(step: Spread, baseline: Spread) -> str:
    """Return ``1.12 (1.04 – 1.21)``."""
    p10, p50, p90 = (value / baseline.p50 for value in (step.p10, step.p50, step.p90))
    return f"{p50:.2f} ({p10:.2f} – {p90:.2f})"
