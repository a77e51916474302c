"""What is learned of an execution, and how it is told."""

from pathlib import Path

import pytest

from tests.trainyard.runs.test_measuring import LINES, SETTING, Run
from trainyard.common.errors import ForesightError
from trainyard.foresight import measured_corrections
from trainyard.foresight.step_time import foresee
from trainyard.runs import training_speed

RUNS = {"first": Run(LINES), "second": Run(LINES), "none": Run(LINES[:2])}


@pytest.fixture(autouse=True)
def executions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_speed, "Execution", lambda arn, region: RUNS[arn])
    monkeypatch.setattr(
        training_speed, "all_executions", lambda region: ["first", "second", "none"]
    )


def learn(which: str, place: Path) -> list[str]:
    return list(training_speed.calibrate(which, lambda job: SETTING, place=place))


def test_an_execution_moves_what_is_foreseen_towards_what_it_took(tmp_path: Path):
    place = tmp_path / "calibration.json"
    said = learn("first", place)
    shipped = foresee(SETTING).step_seconds.p50
    corrected = measured_corrections.read(place).time(SETTING).step_seconds.p50
    assert min(shipped, 1.52) < corrected < max(shipped, 1.52)
    assert "1.52 s a step on 8 × H100-80 (3 lines)" in said[0]
    assert str(place) in said[-1]


def test_all_counts_a_job_once_and_says_what_it_left_out(tmp_path: Path):
    """Both executions have the same job: the second was answered from the cache."""
    said = learn("all", tmp_path / "calibration.json")
    assert sum("a step on" in line for line in said) == 1
    assert [line for line in said if line.startswith("left out: job-1: it logged 1 times")]


def test_nothing_to_learn_is_an_error_and_writes_nothing(tmp_path: Path):
    place = tmp_path / "calibration.json"
    with pytest.raises(ForesightError, match="nothing to learn from: job-1: it logged 1 times"):
        learn("none", place)
    assert not place.exists()
