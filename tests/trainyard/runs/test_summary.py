"""What is shown of a failing step's log."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.runs.execution import Step
from trainyard.runs.summary import (
    LAST_LINES,
    _checks_table,
    _worth_showing,
    last_words,
    registered_again,
)
from trainyard.terminal import console

LAUNCHER_LINES = [
    "E1121 12:05:54.117000 74 torch/distributed/elastic/multiprocessing/api.py:1002] failed",
    "Traceback (most recent call last):",
    "Command failed with exit code 1. Traceback: Traceback (most recent call last):",
]
job_lines = st.lists(st.sampled_from(["step=1 loss=2", "error: too little data", ""]), max_size=40)


@given(job_lines)
def test_the_jobs_own_last_lines_are_kept_and_the_launchers_dropped(lines):
    assert last_words(lines + LAUNCHER_LINES) == last_words(lines) == lines[-LAST_LINES:]


def test_the_traceback_of_the_users_own_script_is_kept():
    own = ["Traceback (most recent call last):", "ValueError: mine"]
    assert last_words(own + LAUNCHER_LINES) == own


def test_the_host_that_the_reason_names_is_shown_not_every_one_of_many():
    hosts = [f"algo-{n}" for n in range(1, 65)]
    assert _worth_showing(hosts, "algo-12 was killed by signal 9 (SIGKILL)") == ["algo-12"]
    assert len(_worth_showing(hosts, "ValueError: mine")) == 2


CHECK = {"name": "max_loss", "direction": "lower", "value": 2.0, "threshold": 3.0, "passed": True}
COMPARED = CHECK | {"name": "superiority_loss", "kind": "superiority", "direction": "higher",
                    "value": 0.01, "low": -0.005, "high": None, "threshold": 0.0,
                    "passed": False}  # fmt: skip


def shown(*checks: dict, **gate: str) -> list[list[str]]:
    with console.capture() as capture:
        console.print(_checks_table({"checks": list(checks)} | gate))
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


def step(metadata: dict, cached: bool = False) -> Step:
    about = {"name": "S", "title": "S", "status": "Succeeded", "reason": ""}
    return Step(**about, started=None, ended=None, cached=cached, metadata=metadata)


JOB = {"TrainingJob": {"Arn": "arn:aws:sagemaker:us-east-1:1:training-job/j"}}
PACKAGE = {"RegisterModel": {"Arn": "arn:aws:sagemaker:us-east-1:1:model-package/g/2"}}
VERDICT = {"Condition": {"Outcome": "True"}}


@pytest.mark.parametrize(
    "steps, again",
    [
        ([step(JOB, cached=True), step(VERDICT), step(PACKAGE)], True),
        ([step(JOB, cached=True), step(JOB), step(PACKAGE)], False),
        ([step(JOB, cached=True)], False),
        ([step(PACKAGE)], False),
        ([], False),
    ],
)
def test_a_model_whose_jobs_were_all_cached_is_registered_again(steps: list[Step], again: bool):
    assert registered_again(steps) == again
