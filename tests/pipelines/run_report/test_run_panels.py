"""The panels of our runs' pages: complete, and drawn from whatever a run got to."""

import re
from typing import Any

import pytest

from pipelines.run_report.run_panels import PANELS, trials
from pipelines.run_report.training_pace import history
from tests.pipelines.run_report.test_search_results import summary
from tests.trainyard.console.test_frozen_page import PACKAGE, References, render, step

pytestmark = pytest.mark.long

CHECK = {
    "name": "max_bits_per_byte",
    "kind": "threshold",
    "metric": "bits_per_byte",
    "direction": "lower",
    "value": 2.5,
    "threshold": 3.0,
    "passed": True,
    "reason": "bits_per_byte is 2.5, the recipe demands at most 3",
}


KNOWN = {
    "pace": None,
    "search": None,
    "training": [{"step": 1.0, "loss": 5.0, "samples_per_second": 10.0},
                 {"step": 2.0, "loss": 4.0, "samples_per_second": 11.0},
                 {"step": 2.0, "validation_loss": 4.1}],
    "metrics": {},
    "evaluation": {
        "metrics": {"bits_per_byte": {"value": 2.5}},
        "baselines": {"bigram": {"bits_per_byte": 3.6}},
        "dataset": {"fingerprint": "f" * 64},
    },
    "gate": {"verdict": "pass", "reason": CHECK["reason"], "checks": [CHECK]},
}  # fmt: skip


def page(**changes: Any) -> str:
    steps = changes.pop("steps", [step("Shard"), step("Train")])
    package = changes.pop("package", PACKAGE)
    panels = tuple(panel.html(KNOWN | changes) for panel in PANELS)
    return render(steps, panels, package)


def test_the_page_shows_the_run_and_fetches_nothing():
    found = References(page())
    assert found.fetched == []
    for shown in ("demo", "Succeeded", "1 min 05 s", "2.5000", "at most", "3.6000", "f" * 64,
                  "model-package/demo/1", "optimizer step", "validation"):  # fmt: skip
        assert shown in found.text


def test_what_a_script_printed_is_drawn_metric_by_metric():
    text = References(page(training=[], metrics={"f1": [0.1, 0.5], "mae": [3.0]})).text
    assert all(shown in text for shown in ("Training", "f1", "mae", "script printed it"))


def test_a_search_shows_its_best_trainings_and_which_was_chosen():
    found = trials([summary("a", 0.5), summary("b", 0.4), summary("c", 0.9, "Stopped")])
    text = References(page(search={"trials": found})).text
    for shown in ("Search: 3 trainings", "best so far", "chosen", "stopped early", "0.4000"):
        assert shown in text


def test_the_standard_error_is_shown_where_there_is_one():
    evaluation = KNOWN["evaluation"] | {
        "metrics": {
            "bits_per_byte": {"value": 2.5, "standard_error": 0.0123},
            "loss": {"value": 1.7, "standard_error": None},
        }
    }
    text = References(page(evaluation=evaluation)).text
    assert re.findall(r"([\d.]+) ± ([\d.]+)", text) == [("2.5000", "0.0123")]


def test_the_same_run_gives_the_same_page():
    assert page() == page()


@pytest.mark.parametrize(
    "missing",
    [
        {"gate": None, "evaluation": None, "package": None},
        {"training": []},
        {"steps": []},
        {"gate": {"verdict": "reject", "reason": "x", "checks": [CHECK | {"value": None}]}},
    ],
    ids=["stopped early", "no metrics", "no steps", "metric missing"],
)
def test_a_run_that_did_not_get_far_has_a_page_too(missing: dict):
    assert "demo" in References(page(**missing)).text


def test_a_reason_cannot_smuggle_markup_into_the_page():
    evil = "<script>alert(1)</script>"
    gate = {"verdict": "reject", "reason": evil, "checks": [CHECK | {"name": evil}]}
    found = page(gate=gate)
    assert evil not in found and found.count("&lt;script&gt;") >= 2


def test_rejected_checks_are_red():
    rejected = CHECK | {"threshold": 2.0, "passed": False}
    found = page(gate={"verdict": "reject", "reason": "x", "checks": [rejected]})
    assert re.search(r'class="reject">\s*reject', found)


def test_history_reads_metric_lines_and_nothing_else():
    lines = [
        "INFO resumed",
        "step=1 loss=5.5 learning_rate=1e-05",
        "epoch=3 step=9",
        "step=2 loss=-1.5e+2",
        "step=2 validation_loss=4",
        "step=2 loss=7",
    ]
    assert history(lines) == [
        {"step": 1.0, "loss": 5.5, "learning_rate": 1e-05},
        {"step": 2.0, "loss": 7.0},
        {"step": 2.0, "validation_loss": 4.0},
    ]
