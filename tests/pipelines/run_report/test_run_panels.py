"""The panels of our runs' pages: complete, and drawn from whatever a run got to; searches."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.run_report.run_panels import (
    PANELS,
    find_incumbents,
    parse_trials,
    rank_trials,
    round_value,
    summarize_seeds,
)
from pipelines.run_report.step_documents import parse_history
from tests.trainyard.console.test_frozen_page import PACKAGE, References, render, step

pytestmark = pytest.mark.long

CHECK = {"name": "max_bits_per_byte", "kind": "threshold", "metric": "bits_per_byte",
         "direction": "lower", "value": 2.5, "threshold": 3.0, "passed": True,
         "reason": "bits_per_byte is 2.5, the recipe demands at most 3"}  # fmt: skip
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


def test_the_page_shows_the_run_fetches_nothing_and_is_the_same_again():
    found = References(page())
    assert found.fetched == [] and page() == page()
    for shown in ("demo", "Succeeded", "1 min 05 s", "2.5000", "at most", "3.6000", "f" * 64,
                  "model-package/demo/1", "optimizer step", "validation"):  # fmt: skip
        assert shown in found.text


def test_what_a_script_printed_is_drawn_metric_by_metric():
    text = References(page(training=[], metrics={"f1": [0.1, 0.5], "mae": [3.0]})).text
    assert all(shown in text for shown in ("Training", "f1", "mae", "script printed it"))


def test_a_search_shows_its_best_trainings_and_which_was_chosen():
    found = parse_trials([summary("a", 0.5), summary("b", 0.4), summary("c", 0.9, "Stopped")])
    text = References(page(search={"trials": found})).text
    for shown in ("Search: 3 trainings", "best so far", "chosen", "stopped early", "0.4000"):
        assert shown in text


def test_the_standard_error_is_shown_where_there_is_one():
    metrics = {
        "bits_per_byte": {"value": 2.5, "standard_error": 0.0123},
        "loss": {"value": 1.7, "standard_error": None},
    }
    text = References(page(evaluation=KNOWN["evaluation"] | {"metrics": metrics})).text
    assert re.findall(r"([\d.]+) ± ([\d.]+)", text) == [("2.5000", "0.0123")]


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


def test_rejected_checks_are_red_and_a_reason_cannot_smuggle_markup_into_the_page():
    evil = "<script>alert(1)</script>"
    rejected = CHECK | {"name": evil, "threshold": 2.0, "passed": False}
    found = page(gate={"verdict": "reject", "reason": evil, "checks": [rejected]})
    assert evil not in found and found.count("&lt;script&gt;") >= 2
    assert re.search(r'class="reject">\s*reject', found)


def test_history_reads_metric_lines_and_nothing_else():
    lines = ["INFO resumed", "step=1 loss=5.5 learning_rate=1e-05", "epoch=3 step=9",
             "step=2 loss=-1.5e+2", "step=2 validation_loss=4", "step=2 loss=7"]  # fmt: skip
    assert parse_history(lines) == [
        {"step": 1.0, "loss": 5.5, "learning_rate": 1e-05},
        {"step": 2.0, "loss": 7.0},
        {"step": 2.0, "validation_loss": 4.0},
    ]


VALUES = st.one_of(st.none(), st.floats(-1e6, 1e6))


def summary(job: str, value: float | None, status: str = "Completed", goal: str = "Minimize"):
    """Return a summary as ListTrainingJobsForHyperParameterTuningJob gives it."""
    final = {"Type": goal, "MetricName": "loss", "Value": value}
    return {
        "TrainingJobName": job,
        "TrainingJobStatus": status,
        "TunedHyperParameters": {"rate": "0.00123456"},
    } | ({} if value is None else {"FinalHyperParameterTuningJobObjectiveMetric": final})


@given(st.lists(VALUES, min_size=1), st.sampled_from(["Minimize", "Maximize"]))
def test_the_best_so_far_never_gets_worse_and_ends_with_the_first_in_rank(values, goal):
    found = parse_trials(summary(str(n), value, goal=goal) for n, value in enumerate(values))
    best = [value for _, value in find_incumbents(found)]
    better = min if goal == "Minimize" else max
    known = [value for value in values if value is not None]
    assert best == [better(known[: n + 1]) for n in range(len(known))]
    if known:
        assert rank_trials(found)[0]["objective"] == best[-1]
    ranked = [one["objective"] for one in rank_trials(found)]
    assert ranked[len(known) :] == [None] * (len(values) - len(known))


def test_a_stopped_training_is_never_the_best_so_far_and_numbers_are_rounded():
    found = parse_trials([summary("a", 0.5), summary("b", 0.1, "Stopped"), summary("c", 0.4)])
    assert find_incumbents(found) == [(1, 0.5), (3, 0.4)]
    assert [round_value(one) for one in ("0.00123456", "adamw", "3")] == ["0.001235", "adamw", "3"]


def test_several_seeds_have_a_mean_with_its_interval_and_other_searches_none():
    seeds = [summary(str(n), value) for n, value in enumerate((1.0, 2.0, 3.0))]
    assert summarize_seeds(parse_trials(seeds)) is None
    for number, one in enumerate(seeds):
        one["TunedHyperParameters"] = {"seed": str(number)}
    # Student's t of 2 degrees of freedom: 4.3027; the standard error is 1 / √3
    assert str(summarize_seeds(parse_trials(seeds))).startswith("2.0000 ± 2.4841 (95 % interval")
    assert summarize_seeds(parse_trials(seeds[:1])) is None
