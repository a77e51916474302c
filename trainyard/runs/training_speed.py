"""Check whether a training job's optimizer steps are slower than expected, and in which part.

The expectation comes from similar earlier training runs, or from a prediction. The second half of
the module calibrates predictions with completed training jobs.
"""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from rich.table import Table

from trainyard.common.errors import ForesightError
from trainyard.foresight import measured_corrections
from trainyard.foresight.measured_corrections import PLACE, Measurement
from trainyard.foresight.setting import Setting
from trainyard.foresight.step_time import predict_step_time
from trainyard.runs.execution import Execution, Step, list_executions
from trainyard.runs.metric_lines import compile_definitions, explain_abandoned_metrics

STEP = "step"
"""Key of the whole optimizer step in ``Seconds``."""

SLACK = 1.2
"""A step counts as slow if it takes this factor longer than the slowest of the earlier runs. The
metric lines of one training job differ by less than this."""

Seconds = Mapping[str, float]
"""Mapping of a part of an optimizer step to its seconds; ``STEP`` is the whole step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedTime:
    """The expected time of an optimizer step."""

    seconds: Seconds
    most: float
    """Longest time of a step, in seconds, that does not count as slow."""

    grounds: str
    """Source of the expectation, in words that a message can use, such as ``3 earlier runs
    took``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The measured time of an optimizer step, and the expected times."""

    found: Seconds
    """Measured seconds."""

    expected: tuple[ExpectedTime, ...] = field(default=())
    """Expectations. The first one decides whether the training job is slow; all are shown."""

    @property
    def is_slow(self) -> bool:
        """True if a step takes longer than ``most`` of the first expectation."""
        return bool(self.expected) and self.found[STEP] > self.expected[0].most

    @property
    def slowest(self) -> str:
        """Part of the step that exceeds its expected time most; ``STEP`` if no part is known."""
        expected = self.expected[0].seconds
        parts = [part for part in self.found if part != STEP and part in expected]
        return max(parts, key=lambda part: self.found[part] - expected[part], default=STEP)

    def describe_slowness(self) -> str:
        """Return a sentence that says how slow a step is and why; empty if it is not slow.

        It is like ``slow: a step takes 2.31 s, not the 1.53 s that 3 earlier runs took; …``.
        """
        if not self.is_slow:
            return ""
        expectation, part = self.expected[0], self.slowest
        much = f"a step takes {self.found[STEP]:.3g} s, not the {expectation.seconds[STEP]:.3g} s"
        detail = ""
        if part != STEP:
            detail = f"; most of the difference is {part}: {self.found[part]:.3g} s instead of "
            detail += f"{expectation.seconds[part]:.3g} s"
        return f"slow: {much} that {expectation.grounds}{detail}"

    def build_table(self) -> Table:
        """Return a table of measured and expected seconds: a row for the step and each part."""
        table = Table(box=None, pad_edge=False)
        table.add_column("seconds of")
        table.add_column("this run", justify="right")
        for expectation in self.expected:
            table.add_column(expectation.grounds, justify="right")
        for part in self.found:
            others = (other.seconds.get(part) for other in self.expected)
            table.add_row(part, *map(format_figure, (self.found[part], *others)))
        return table


def format_figure(seconds: float | None) -> str:
    """Return the number with three significant digits; an empty string for None."""
    return "" if seconds is None else f"{seconds:.3g}"


def estimate_expected_time(runs: Sequence[Seconds]) -> ExpectedTime | None:
    """Return the expectation from the measured times of similar earlier runs.

    Return None if none of them has the time of a whole step.
    """
    runs = [run for run in runs if STEP in run]
    if not runs:
        return None
    parts = [part for part in runs[0] if all(part in run for run in runs)]
    count = len(runs)
    return ExpectedTime(
        seconds={part: median(run[part] for run in runs) for part in parts},
        most=SLACK * max(run[STEP] for run in runs),
        grounds=f"{count} earlier run{'' if count == 1 else 's'} took",
    )


# Calibrate the predictions with completed training jobs: those of one execution, or of all
# pipelines of the account.

METRIC = "step_seconds"
FIRST = 1
"""Number of logged times at the beginning that are left out, because kernels are chosen and
compiled then."""

SettingOf = Callable[[Mapping[str, Any]], Setting]
"""Function that returns the setting of a training job from DescribeTrainingJob's response; raises
ForesightError if it is not known."""


def iter_measurements(execution: Execution, setting_of: SettingOf) -> Iterator[Measurement | str]:
    """Iterate over measurements of the step times of an execution's successful training jobs.

    Yield a string with the reason for a training job that cannot be used.

    Raises:
        ServiceError: the execution does not exist, or AWS cannot be reached.
    """
    for step in execution.list_steps():
        if step.job and step.job[0] == "TrainingJob" and step.status == "Succeeded":
            job = execution.describe_training_job(step.job[1])
            try:
                yield _make_measurement(
                    job, setting_of(job), read_step_seconds(execution, step, job)
                )
            except ForesightError as error:
                yield f"{step.job[1]}: {error}"


def read_step_seconds(execution: Execution, step: Step, job: Mapping[str, Any]) -> list[float]:
    """Return the seconds per optimizer step that a job logged, in the order of the log.

    Raises:
        ForesightError: matching the metric's regular expression takes too long.
    """
    metrics = [
        definition for definition in compile_definitions(job) if definition.name.endswith(METRIC)
    ][:1]
    readings = (
        metric.extract_value(line) for metric in metrics for line in execution.iter_lines(step)
    )
    values = [value for value in readings if value is not None]
    if explain_abandoned_metrics(metrics):
        raise ForesightError(explain_abandoned_metrics(metrics)[0])
    return values


def _make_measurement(
    job: Mapping[str, Any], setting: Setting, seconds: list[float]
) -> Measurement:
    """Return the median of a job's logged seconds as a measurement.

    Raises:
        ForesightError: the job logged too few.
    """
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
"""Value of ``--calibrate`` that means all executions."""


def calibrate_predictions(
    which: str, setting_of: SettingOf, region: str | None = None, path: Path = PLACE
) -> Iterator[str]:
    """Add measured training jobs to the calibration file, and yield the lines of a report.

    The file is written before the first line is yielded.

    Args:
        which: ARN of an execution, or ``all``.
        setting_of: returns the setting of a training job.
        region: region of the executions; None for that of the environment.
        path: the calibration file.

    Raises:
        ForesightError: no training job can be used; the message says why.
        ServiceError: the execution does not exist, or AWS cannot be reached.
    """
    arns = list_executions(region) if which == ALL else [which]
    outcomes = [
        line for arn in arns for line in iter_measurements(Execution(arn, region), setting_of)
    ]
    measurements = [item for item in outcomes if isinstance(item, Measurement)]
    left_out = list(dict.fromkeys(item for item in outcomes if isinstance(item, str)))
    if not measurements:
        reason = "; ".join(left_out) or "it has no training job that succeeded"
        raise ForesightError(f"--calibrate {which}: nothing to learn from: {reason}")
    measured_corrections.read_measured_runs(path).with_trainings(measurements).write(path)
    for measurement in {item.job: item for item in measurements}.values():
        baseline = predict_step_time(measurement.setting).step_seconds
        yield (
            f"{measurement.job.rpartition('/')[2]}: {measurement.step_seconds:.3g} s a step on "
            f"{measurement.setting.gpus} × {measurement.setting.gpu} ({measurement.lines} lines), "
            f"{measurement.step_seconds / baseline.p50:.2f} times the shipped {baseline.p50:.3g} s"
        )
    yield from (f"left out: {line}" for line in left_out)
    yield f"saved in {path}, which plan, advise, watch and report read"
