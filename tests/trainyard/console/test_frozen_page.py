"""The page of a run as a single file: complete and self-contained, for any state of the run."""

import base64
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path

import pytest
from markupsafe import Markup

from trainyard.common.errors import ServiceError
from trainyard.console import frozen_page
from trainyard.console.account_cache import Account, Snapshot
from trainyard.console.app_hooks import METRICS, Panel, render_panels
from trainyard.console.pages.run import RunData, build_overview
from trainyard.runs.execution import Step
from trainyard.runs.run_display import build_metrics_table
from trainyard.terminal import console

START = datetime(2026, 1, 1, tzinfo=UTC)
PANEL = Markup(METRICS.html({"metrics": {"Train": {"train:loss": 0.125}}}))
PACKAGE = "arn:aws:sagemaker:us-east-1:1:model-package/demo/1"


def step(name: str, status: str = "Succeeded", **changes) -> Step:
    values = {"name": name, "title": name, "status": status, "reason": "", "cached": False}
    values |= {"started": START, "ended": START + timedelta(seconds=65), "metadata": {}}
    return Step(**(values | changes))


def render(
    steps: Sequence[Step] = (step("Shard"), step("Train")),
    panels: Sequence[str] = (PANEL,),
    package: str | None = PACKAGE,
) -> str:
    """Return the page of a run with these steps, which registered that package."""
    described = {
        "PipelineExecutionArn": "arn:aws:sagemaker:us-east-1:1:pipeline/demo/execution/abc",
        "PipelineExecutionStatus": "Succeeded",
        "CreationTime": START,
        "LastModifiedTime": START + timedelta(seconds=90),
    }
    made = [step("Register", metadata={"RegisterModel": {"Arn": package}})] if package else []
    known = RunData(panels=[Markup(panel) for panel in panels])
    snapshot = Snapshot(described, (*steps, *made))
    run = build_overview("demo", "abc", snapshot, known, START + timedelta(seconds=90))
    return frozen_page.render_frozen_page(run, Account("us-east-1"))


PICTURE = "data:image/svg+xml;base64,"


class References(HTMLParser):
    """Collects every reference that a browser would fetch, and the visible text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("src", "href", "xlink:href") and not (value or "").startswith("#"):
                before, is_there, data = (value or "").partition(PICTURE)
                if is_there and not before:
                    self.look_into(base64.b64decode(data).decode())
                else:
                    self.fetched.append(f"{tag} {value}")

    def look_into(self, picture: str) -> None:
        inner = References(picture)
        self.fetched += inner.fetched
        self.text += inner.text

    def handle_data(self, data):
        self.text += data


def test_the_page_shows_the_run_and_fetches_nothing():
    written = render()
    assert render() == written
    page = References(written)
    assert page.fetched == []
    for shown in ("demo", "Succeeded", "1 min 05 s", "model-package/demo/1", "critical path",
                  "train:loss", "0.125"):  # fmt: skip
        assert shown in page.text


@pytest.mark.parametrize(
    "missing",
    [{"panels": (), "package": None}, {"panels": ("",)}, {"steps": []}],
    ids=["stopped early", "no metrics", "no steps"],
)
def test_a_run_that_did_not_get_far_has_a_page_too(missing: dict):
    assert "demo" in References(render(**missing)).text
    bare = step("Train", "Executing", started=None, ended=None)  # AWS leaves more out
    run = build_overview("demo", "abc", Snapshot({}, (bare,)), RunData(), START)
    assert "Train" in References(frozen_page.render_frozen_page(run, Account("us-east-1"))).text


def test_a_reason_cannot_smuggle_markup_into_the_page():
    evil = "<script>alert(1)</script>"
    page = render(steps=[step("Train", "Failed", reason=evil)])
    assert evil not in page and "&lt;script&gt;" in page


class Jobs:
    """An execution with the metrics of its training jobs."""

    def describe_training_job(self, name: str) -> dict:
        return {"FinalMetricDataList": [{"MetricName": f"{name}:<loss>", "Value": 0.125}]}


def test_the_metrics_of_any_training_job_are_shown_and_nothing_where_there_are_none():
    job = {"TrainingJob": {"Arn": "arn:aws:sagemaker:us-east-1:1:training-job/mine"}}
    steps = {"Fit": step("Fit", metadata=job), "Other": step("Other")}
    [html] = render_panels([METRICS], Jobs(), steps)
    assert "mine:&lt;loss&gt;" in html and "0.125" in html and "Fit" in html
    assert render_panels([METRICS], Jobs(), {"Other": step("Other")}) == ("",)
    with console.capture() as capture:
        console.print(build_metrics_table(Jobs(), steps))
    assert capture.get().split() == ["training", "metric", "value", "Fit", "mine:<loss>", "0.125"]


def test_a_name_that_two_panels_read_is_read_once():
    reads = []
    panels = [Panel(reads={"x": lambda *_: reads.append(1) or 7}, html=str)
                for _ in range(2)]  # fmt: skip
    assert render_panels(panels, None, {}) == ("{'x': 7}",) * 2 and reads == [1]


def test_a_failing_write_leaves_the_old_page(tmp_path: Path):
    out = tmp_path / "report.html"
    out.write_text("old")
    with pytest.raises(ServiceError, match="nonsense: expected arn"):
        frozen_page.write_frozen_page("nonsense", out)
    assert out.read_text() == "old"
