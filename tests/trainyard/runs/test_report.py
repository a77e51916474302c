"""The page of any run: complete, self-contained, and drawn from whatever a run got to."""

from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path

import pytest

from trainyard.runs.execution import Step
from trainyard.runs.metrics import metrics_table
from trainyard.runs.report import Run, render, write
from trainyard.runs.sections import METRICS, Section, read_sections
from trainyard.terminal import console

START = datetime(2026, 1, 1, tzinfo=UTC)
SECTION = METRICS.html({"metrics": {"Train": {"train:loss": 0.125}}})


def step(name: str, status: str = "Succeeded", **changes) -> Step:
    values = {
        "name": name,
        "title": name,
        "status": status,
        "started": START,
        "ended": START + timedelta(seconds=65),
        "reason": "",
        "cached": False,
        "metadata": {},
    }
    return Step(**(values | changes))


def run(**changes) -> Run:
    values = {
        "described": {
            "PipelineExecutionArn": "arn:aws:sagemaker:us-east-1:1:pipeline/demo/execution/abc",
            "PipelineExecutionStatus": "Succeeded",
            "CreationTime": START,
            "LastModifiedTime": START + timedelta(seconds=90),
        },
        "steps": [step("Shard"), step("Train")],
        "sections": (SECTION,),
        "package": "arn:aws:sagemaker:us-east-1:1:model-package/demo/1",
    }
    return Run(**(values | changes))


class References(HTMLParser):
    """Everything on a page that a browser would fetch, and the text that a person reads."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("src", "href", "xlink:href") and not (value or "").startswith("#"):
                self.fetched.append(f"{tag} {value}")

    def handle_data(self, data):
        self.text += data


def test_the_page_shows_the_run_and_fetches_nothing():
    page = References(render(run()))
    assert page.fetched == []
    for shown in ("demo", "Succeeded", "1 min 05 s", "model-package/demo/1", "seconds since",
                  "train:loss", "0.125"):  # fmt: skip
        assert shown in page.text


def test_the_same_run_gives_the_same_page():
    assert render(run()) == render(run())


@pytest.mark.parametrize(
    "missing",
    [{"sections": (), "package": None}, {"sections": ("",)}, {"steps": []}],
    ids=["stopped early", "no metrics", "no steps"],
)
def test_a_run_that_did_not_get_far_has_a_page_too(missing: dict):
    assert "demo" in References(render(run(**missing))).text


def test_a_reason_cannot_smuggle_markup_into_the_page():
    evil = "<script>alert(1)</script>"
    page = render(run(steps=[step("Train", "Failed", reason=evil)]))
    assert evil not in page and "&lt;script&gt;" in page


class Jobs:
    """An execution that knows what its training jobs have measured."""

    def training_job(self, name: str) -> dict:
        return {"FinalMetricDataList": [{"MetricName": f"{name}:<loss>", "Value": 0.125}]}


def test_the_metrics_of_any_training_job_are_shown_and_nothing_where_there_are_none():
    job = {"TrainingJob": {"Arn": "arn:aws:sagemaker:us-east-1:1:training-job/mine"}}
    steps = {"Fit": step("Fit", metadata=job), "Other": step("Other")}
    [html] = read_sections([METRICS], Jobs(), steps)
    assert "mine:&lt;loss&gt;" in html and "0.125" in html and "Fit" in html
    assert read_sections([METRICS], Jobs(), {"Other": step("Other")}) == ("",)
    with console.capture() as capture:
        console.print(metrics_table(Jobs(), steps))
    assert capture.get().split() == ["training", "metric", "value", "Fit", "mine:<loss>", "0.125"]


def test_a_name_that_two_sections_read_is_read_once():
    reads = []
    sections = [Section(reads={"x": lambda *_: reads.append(1) or 7}, html=lambda known: str(known))
                for _ in range(2)]  # fmt: skip
    assert read_sections(sections, None, {}) == ("{'x': 7}",) * 2 and reads == [1]


def test_a_failing_write_leaves_the_old_page(tmp_path: Path):
    out = tmp_path / "report.html"
    out.write_text("old")
    with pytest.raises(AttributeError):
        write(None, out)
    assert out.read_text() == "old"
