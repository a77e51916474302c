"""Tests of the lines about our runs in a terminal beside the steps."""

from pipelines.run_report.training_pace import checks_table, steps_done
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
