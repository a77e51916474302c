"""Curves of training jobs that ran, from their logs or, without a log, from other sources."""

import re
import time

import pytest

from tests.trainyard.emulator.harness import Cloud, training
from trainyard import metric_regex
from trainyard.console import metric_curves
from trainyard.console.account_cache import Account
from trainyard.console.pages.step import render_curves
from trainyard.console.web_server import create_console_app
from trainyard.runs.execution import Step

NAME = "<script>alert(1)</script>"
LINES = """
for i in $(seq 1 30); do
  echo "step=$i loss=0.$((90 - i)) data_seconds=0.1 optimizer_seconds=0.2 step_seconds=0.5"
done
echo "step=31 loss=nan"
echo "step=31 validation_loss=0.7"
echo $(printf 'a%.0s' $(seq 60))b
"""
REGEXES = {
    "train:step": r"step=(\d+)",
    "train:loss": r"(?:^|\s)loss=(\S+)",
    "validation:loss": r"validation_loss=(\S+)",
    "train:data_seconds": r"data_seconds=(\S+)",
    "train:optimizer_seconds": r"optimizer_seconds=(\S+)",
    "train:step_seconds": r"step_seconds=(\S+)",
    NAME: r"step=(1)\d",
    "endless": r"(a|aa)+$",
}


@pytest.fixture(scope="module")
def job(cloud: Cloud) -> str:
    """Name of a training job that has logged metrics."""
    request = training(LINES)
    measured = [{"Name": name, "Regex": regex} for name, regex in REGEXES.items()]
    request["AlgorithmSpecification"]["MetricDefinitions"] = measured
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metric_regex, "SECONDS_AHEAD", 0.02)  # the emulator shall not wait long
        cloud.train("curved", LINES, **request)
    return "curved"


@pytest.fixture
def account(cloud: Cloud, monkeypatch) -> Account:
    """An account without readings, which reads a log to its end."""
    monkeypatch.setattr(metric_curves, "SECONDS", 600.0)
    monkeypatch.setattr(metric_regex, "SECONDS_AHEAD", 0.02)
    return Account()


def render_job_curves(account: Account, job: str) -> str:
    step = Step(
        name="Train", title="Train", status="Succeeded", started=None, ended=None, reason="",
        cached=False, metadata={"TrainingJob": {"Arn": f"arn:aws:sagemaker:::training-job/{job}"}},
    )  # fmt: skip
    with create_console_app(account, "key").test_request_context("/"):
        return render_curves(account, step)


def test_a_job_s_curves_are_those_of_its_log(account: Account, cloud: Cloud, job: str):
    html = render_job_curves(account, job)
    titles = re.findall(r"<strong>([^<]+)</strong>", html)
    assert titles[0] == "loss"
    assert "NaN" in html or "nan" in html
    assert "<script" not in html and "&lt;script&gt;" in html
    cells = re.search(r'<th scope="row">train:loss</th>(.*?)</tr>', html, re.DOTALL)
    assert re.findall(r">([^<>\n]+)<", cells[1]) == [
        "nan", "0.6", "at step 30", "0.89", "at step 1", "31",
    ]  # fmt: skip
    [told] = re.findall(r'<p class="notice">([^<]+)</p>', html)
    assert "metric endless" in told and "(a|aa)+$" in told
    logged = cloud.logs.filter_log_events(
        logGroupName="/aws/sagemaker/TrainingJobs", filterPattern='"metric endless"'
    )
    assert len(logged["events"]) == 1  # the log tells of it, too
    cloud.train("silent", "echo nothing")
    assert render_job_curves(account, "silent") == ""


def test_a_log_that_is_too_long_or_gone_leaves_cloudwatch_s_metrics(
    account: Account, cloud: Cloud, job: str, monkeypatch
):
    monkeypatch.setattr(metric_curves, "MOST", 10)
    html = render_job_curves(account, job)
    assert "means over a minute" in html and "train:loss" in html


def test_curves_of_a_log_of_many_parts_come_as_it_is_read(account: Account, job: str, monkeypatch):
    monkeypatch.setattr(metric_curves, "SECONDS", 0.0)
    pages, fetch = iter(range(1_000)), metric_curves.fetch_log_events

    def part(*asked, **more):
        return fetch(*asked, **more, limit=10 + next(pages))

    monkeypatch.setattr(metric_curves, "fetch_log_events", part)
    reader = metric_curves.Reader(account, job)
    found = reader.read()
    assert found.until is not None and 0 < len(found.samples["train:loss"].values) < 31
    deadline = time.monotonic() + 30
    while reader.read().until is not None:
        assert time.monotonic() < deadline
    assert found.samples["train:loss"].count == 31
