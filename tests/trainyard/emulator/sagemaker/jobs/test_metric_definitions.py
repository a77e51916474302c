"""Metrics read from log lines."""

import pytest

from trainyard import metric_regex
from trainyard.emulator.request_scope import ApiError
from trainyard.emulator.sagemaker.jobs.training_job import Metrics

pytestmark = pytest.mark.long


def test_the_latest_value_of_each_metric() -> None:
    metrics = Metrics(
        [{"Name": "loss", "Regex": r"loss=([0-9.e+-]+)"}, {"Name": "lr", "Regex": r"lr=(\S+)"}]
    )
    for line in ("step 1 loss=2.5 lr=1e-3", "step 2 loss=1.25", "other", "loss=nan? lr=nan"):
        metrics.read(line)
    assert {m["MetricName"]: m["Value"] for m in metrics.latest()} == {"loss": 1.25, "lr": 0.001}


@pytest.mark.parametrize("regex", ["loss=(", "loss=[0-9]+"])
def test_a_regex_that_cannot_work_is_refused(regex: str) -> None:
    with pytest.raises(ApiError, match="'loss'"):
        Metrics([{"Name": "loss", "Regex": regex}])


def test_an_expression_that_takes_too_long_is_told_once_and_the_others_go_on(monkeypatch):
    monkeypatch.setattr(metric_regex, "SECONDS_AHEAD", 0.02)
    metrics = Metrics(
        [{"Name": "endless", "Regex": "(a|aa)+$"}, {"Name": "loss", "Regex": r"loss=(\S+)"}]
    )
    assert metrics.read(f"loss=0.5 {'a' * 60}b") == [("loss", 0.5)]
    [warning] = metrics.given_up()
    assert "'(a|aa)+$'" in warning and metrics.given_up() == []
