"""Step times of trainings that ran, from recorded metric lines, and what is learned of them."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from training.watching.metric_line import METRICS
from trainyard.common.errors import ForesightError
from trainyard.foresight import measured_corrections
from trainyard.foresight.measured_corrections import Measurement
from trainyard.foresight.setting import Setting
from trainyard.foresight.step_time import predict_step_time
from trainyard.runs import training_speed
from trainyard.runs.execution import Step
from trainyard.runs.training_speed import iter_measurements

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

    def list_steps(self) -> list[Step]:
        job = {self.kind: {"Arn": "arn:x/job-1"}}
        told = {"started": None, "ended": None, "reason": "", "cached": False}
        return [Step(name="Train", title="Train", status=self.status, metadata=job, **told)]

    def describe_training_job(self, name: str) -> dict[str, Any]:
        definitions = [{"Name": n, "Regex": r} for n, r in METRICS]
        spec = {"MetricDefinitions": definitions}
        return {"TrainingJobArn": f"arn:{name}", "AlgorithmSpecification": spec}

    def iter_lines(self, step: Step) -> Iterator[str]:
        return iter(self.lines)


def list_measurements(run: Run, of=lambda job: SETTING) -> list[Measurement | str]:
    return list(iter_measurements(run, of))  # type: ignore[arg-type]


def test_the_median_of_a_log_counts_without_its_first_line():
    [training] = list_measurements(Run(LINES))
    assert training == Measurement(job="arn:job-1", setting=SETTING, step_seconds=1.52, lines=3)


def test_what_cannot_be_told_says_why_and_only_trainings_that_succeeded_count():
    def unknown(job: Mapping[str, Any]) -> Setting:
        raise ForesightError("it has no GPU")

    assert list_measurements(Run(LINES), unknown) == ["job-1: it has no GPU"]
    [said] = list_measurements(Run(LINES[:2]))
    assert isinstance(said, str) and "logged 1 times" in said and "log_interval" in said
    assert (
        list_measurements(Run(LINES, "Failed"))
        == list_measurements(Run(LINES, kind="ProcessingJob"))
        == []
    )


RUNS = {"first": Run(LINES), "second": Run(LINES), "none": Run(LINES[:2])}


@pytest.fixture
def learn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Learns of RUNS into tmp_path; the second has the first one's job, from the cache."""
    monkeypatch.setattr(training_speed, "Execution", lambda arn, region: RUNS[arn])
    monkeypatch.setattr(training_speed, "list_executions", lambda region: [*RUNS])
    place = tmp_path / "calibration.json"
    return lambda which: list(
        training_speed.calibrate_predictions(which, lambda job: SETTING, path=place)
    )


def test_executions_move_what_is_foreseen_and_a_job_counts_once(learn, tmp_path: Path):
    said = learn("all")
    place = tmp_path / "calibration.json"
    shipped = predict_step_time(SETTING).step_seconds.p50
    corrected = (
        measured_corrections.read_measured_runs(place).predict_time(SETTING).step_seconds.p50
    )
    assert min(shipped, 1.52) < corrected < max(shipped, 1.52)
    [told] = [line for line in said if "a step on" in line]
    assert "1.52 s a step on 8 × H100-80 (3 lines)" in told and str(place) in said[-1]
    assert [line for line in said if line.startswith("left out: job-1: it logged 1 times")]


def test_nothing_to_learn_is_an_error_and_writes_nothing(learn, tmp_path: Path):
    with pytest.raises(ForesightError, match="nothing to learn from: job-1: it logged 1 times"):
        learn("none")
    assert not [*tmp_path.iterdir()]
