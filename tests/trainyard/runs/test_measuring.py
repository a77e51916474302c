"""Step times of trainings that ran, from recorded metric lines."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from training.watching.metric_line import METRICS
from trainyard.common.errors import ForesightError
from trainyard.foresight.measured_corrections import Measurement
from trainyard.foresight.setting import Setting
from trainyard.runs.execution import Step
from trainyard.runs.training_speed import measure_trainings

SETTING = Setting(gpu="H100-80", gpus=8, layers=32, hidden=4096)
LINES = [
    "INFO strategy fsdp, 8 ranks",
    "step=10 loss=9.1 step_seconds=4.2 data_seconds=0.01 forward_backward_seconds=4.0",
    "step=20 loss=8.1 step_seconds=1.52 data_seconds=0.01 forward_backward_seconds=1.4",
    "step=20 validation_loss=8.2",
    "step=30 loss=7.1 step_seconds=1.5 data_seconds=0.01 forward_backward_seconds=1.4",
    "step=40 loss=6.1 step_seconds=9.9 data_seconds=0.01 forward_backward_seconds=9.8",
]


class Run:
    """An execution whose training logged ``lines``."""

    def __init__(self, lines: list[str], status: str = "Succeeded", kind: str = "TrainingJob"):
        self.lines, self.status, self.kind = lines, status, kind

    def steps(self) -> list[Step]:
        job = {self.kind: {"Arn": "arn:x/job-1"}}
        told = {"started": None, "ended": None, "reason": "", "cached": False}
        return [Step(name="Train", title="Train", status=self.status, metadata=job, **told)]

    def training_job(self, name: str) -> dict[str, Any]:
        definitions = [{"Name": n, "Regex": r} for n, r in METRICS]
        return {
            "TrainingJobArn": f"arn:{name}",
            "AlgorithmSpecification": {"MetricDefinitions": definitions},
        }

    def all_lines(self, step: Step) -> Iterator[str]:
        return iter(self.lines)


def found(run: Run, of=lambda job: SETTING) -> list[Measurement | str]:
    return list(measure_trainings(run, of))  # type: ignore[arg-type]


def test_the_median_of_a_log_counts_without_its_first_line():
    [training] = found(Run(LINES))
    assert training == Measurement(job="arn:job-1", setting=SETTING, step_seconds=1.52, lines=3)


def test_what_cannot_be_told_says_why():
    def unknown(job: Mapping[str, Any]) -> Setting:
        raise ForesightError("it has no GPU")

    assert found(Run(LINES), unknown) == ["job-1: it has no GPU"]
    [said] = found(Run(LINES[:2]))
    assert isinstance(said, str) and "logged 1 times" in said and "log_interval" in said


@pytest.mark.parametrize("run", [Run(LINES, "Failed"), Run(LINES, kind="ProcessingJob")])
def test_only_trainings_that_succeeded_count(run: Run):
    assert found(run) == []
