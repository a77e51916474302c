"""How long the steps of trainings took that ran, as their own metrics say it.

A training counts when one of its MetricDefinitions is called ``step_seconds``, or ends so
(``train:step_seconds``): the seconds of an optimizer step. Its log is read for it, since the
service keeps the latest value alone.
"""

import statistics
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from trainyard.common.errors import ForesightError
from trainyard.foresight.calibration import Measured
from trainyard.foresight.setting import Setting
from trainyard.runs.execution import Execution, Step
from trainyard.runs.metric_lines import definitions, given_up

METRIC = "step_seconds"
FIRST = 1
"""Lines at the beginning that do not count: kernels are chosen and compiled there."""

SettingOf = Callable[[Mapping[str, Any]], Setting]
"""DescribeTrainingJob's answer → what was trained; raises ForesightError where nobody knows it."""


def measured(execution: Execution, setting_of: SettingOf) -> Iterator[Measured | str]:
    """Each training of an execution, or why it does not count.

    Raises:
        ServiceError: there is no such execution, or AWS cannot be reached.
    """
    for step in execution.steps():
        if step.job and step.job[0] == "TrainingJob" and step.status == "Succeeded":
            job = execution.training_job(step.job[1])
            try:
                yield _measured(job, setting_of(job), seconds(execution, step, job))
            except ForesightError as error:
                yield f"{step.job[1]}: {error}"


def seconds(execution: Execution, step: Step, job: Mapping[str, Any]) -> list[float]:
    """Seconds of an optimizer step, in the order in which the job logged them.

    Raises:
        ForesightError: the metric's expression takes too long.
    """
    known = [one for one in definitions(job) if one.name.endswith(METRIC)][:1]
    found = (one.value(line) for one in known for line in execution.all_lines(step))
    values = [value for value in found if value is not None]
    if given_up(known):
        raise ForesightError(given_up(known)[0])
    return values


def _measured(job: Mapping[str, Any], setting: Setting, logged: list[float]) -> Measured:
    later = [value for value in logged[FIRST:] if value > 0]
    if not later:
        raise ForesightError(
            f"it logged {len(logged)} times of {METRIC}, and the first one does not count; log "
            "more often (train.loop.log_interval)"
        )
    return Measured(
        job=job["TrainingJobArn"],
        setting=setting,
        step_seconds=statistics.median(later),
        lines=len(later),
    )
