"""The report: complete, self-contained, and drawn from whatever a run got to."""

import re
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path

import pytest

from trainyard.runs.execution import Step
from trainyard.runs.report import Run, read_history, render, write

START = datetime(2026, 1, 1, tzinfo=UTC)
CHECK = {
    "name": "max_bits_per_byte",
    "metric": "bits_per_byte",
    "direction": "lower",
    "value": 2.5,
    "threshold": 3.0,
    "passed": True,
    "reason": "bits_per_byte is 2.5, the recipe demands at most 3",
}


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
        "history": [{"step": 1.0, "loss": 5.0, "samples_per_second": 10.0},
                    {"step": 2.0, "loss": 4.0, "samples_per_second": 11.0},
                    {"step": 2.0, "validation_loss": 4.1}],
        "evaluation": {
            "metrics": {"bits_per_byte": {"value": 2.5}},
            "baselines": {"bigram": {"bits_per_byte": 3.6}},
            "dataset": {"fingerprint": "f" * 64},
        },
        "gate": {"verdict": "pass", "reason": CHECK["reason"], "checks": [CHECK]},
        "package": "arn:aws:sagemaker:us-east-1:1:model-package/demo/1",
    }  # fmt: skip
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
    for shown in ("demo", "Succeeded", "1 min 05 s", "2.5000", "at most", "3.6000", "f" * 64,
                  "model-package/demo/1", "optimizer step", "validation"):  # fmt: skip
        assert shown in page.text


def test_the_standard_error_is_shown_where_there_is_one():
    evaluation = run().evaluation
    evaluation["metrics"] = {
        "bits_per_byte": {"value": 2.5, "standard_error": 0.0123},
        "loss": {"value": 1.7, "standard_error": None},
    }
    text = References(render(run(evaluation=evaluation))).text
    assert re.findall(r"([\d.]+) ± ([\d.]+)", text) == [("2.5000", "0.0123")]


def test_the_same_run_gives_the_same_page():
    assert render(run()) == render(run())


@pytest.mark.parametrize(
    "missing",
    [
        {"gate": None, "evaluation": None, "package": None},
        {"history": []},
        {"steps": []},
        {"gate": {"verdict": "reject", "reason": "x", "checks": [CHECK | {"value": None}]}},
    ],
    ids=["stopped early", "no metrics", "no steps", "metric missing"],
)
def test_a_run_that_did_not_get_far_has_a_page_too(missing: dict):
    assert "demo" in References(render(run(**missing))).text


def test_a_reason_cannot_smuggle_markup_into_the_page():
    evil = "<script>alert(1)</script>"
    page = render(run(steps=[step("Train", "Failed", reason=evil)]))
    assert evil not in page and "&lt;script&gt;" in page


def test_rejected_checks_are_red():
    rejected = CHECK | {"threshold": 2.0, "passed": False}
    page = render(run(gate={"verdict": "reject", "reason": "x", "checks": [rejected]}))
    assert re.search(r'class="reject">\s*reject', page)


def test_history_reads_metric_lines_and_nothing_else():
    lines = [
        "INFO resumed",
        "step=1 loss=5.5 learning_rate=1e-05",
        "epoch=3 step=9",
        "step=2 loss=-1.5e+2",
        "step=2 validation_loss=4",
        "step=2 loss=7",
    ]
    assert read_history(lines) == [
        {"step": 1.0, "loss": 5.5, "learning_rate": 1e-05},
        {"step": 2.0, "loss": 7.0},
        {"step": 2.0, "validation_loss": 4.0},
    ]


def test_a_failing_write_leaves_the_old_page(tmp_path: Path):
    out = tmp_path / "report.html"
    out.write_text("old")
    with pytest.raises(AttributeError):
        write(None, out)
    assert out.read_text() == "old"
