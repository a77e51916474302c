"""Tests of the lines about our runs in a terminal beside the steps."""

from pipelines.run_report.training_pace import against_table, checks_table, steps_done
from trainyard.terminal import console

CHECK = {"name": "max_loss", "direction": "lower", "value": 2.0, "threshold": 3.0, "passed": True}
COMPARED = CHECK | {"name": "superiority_loss", "kind": "superiority", "direction": "higher",
                    "value": 0.01, "low": -0.005, "high": None, "threshold": 0.0,
                    "passed": False}  # fmt: skip


def shown(*checks: dict, **gate: str) -> list[list[str]]:
    with console.capture() as capture:
        console.print(checks_table({"checks": list(checks)} | gate))
    return [line.split() for line in capture.get().splitlines()]


def test_limits_are_shown_where_a_check_has_some_and_what_is_demanded_of_them():
    head, plain, compared = shown(CHECK, COMPARED)
    assert head == ["gate", "value", "limits", "demanded"]
    assert plain == ["max_loss", "2.0000", "at", "most", "3.0000", "pass"]
    assert compared[1:] == ["0.0100", "-0.0050", "to", "∞", "low", "above", "0.0000", "reject"]
    assert shown(CHECK)[0] == ["gate", "value", "demanded"]


def test_a_cold_start_says_that_there_is_no_champion_and_what_the_policy_did():
    undecided = COMPARED | {"value": None, "low": None, "passed": True}
    _, row = shown(undecided, champion="none", cold_start="pass")
    assert "no champion, cold_start: pass" in " ".join(row) and "missing" not in row
    _, row = shown(CHECK | {"value": None, "kind": "threshold"}, champion="none")
    assert "missing" in row


def test_a_training_that_has_told_its_step_has_a_bar():
    told = [{"MetricName": "train:step", "Value": 30.0}, {"MetricName": "train:loss", "Value": 2}]
    job = {"FinalMetricDataList": told, "HyperParameters": {"max_steps": "300"}}
    assert steps_done(job) == (30, 300)
    assert steps_done(job | {"FinalMetricDataList": []}) is None
    assert steps_done(job | {"HyperParameters": {}}) is None


def test_each_baseline_with_scores_has_a_line_that_says_whether_the_model_beats_it(monkeypatch):
    monkeypatch.setattr(console, "_width", 120)  # a terminal of 80 breaks the lines
    row = {"baseline": "boosted_trees", "metric": "loss", "model": 2.0, "other": 2.1, "value": 0.1}
    limits = ({"low": 0.05, "high": 0.15}, {"low": -0.1, "high": 0.3}, {"low": -2, "high": -1})
    with console.capture() as capture:
        table = against_table({"against_baselines": [row | each for each in limits]})
        console.print(table)
    _, beaten, open_, lost = (line.split() for line in capture.get().splitlines())
    numbers = ["boosted_trees", "loss", "2.0000", "2.1000", "+0.1000", "0.0500", "to", "0.1500"]
    assert beaten == [*numbers, "yes"]
    assert (open_[-2:], lost[-3:]) == (["not", "shown"], ["it", "is", "worse"])
