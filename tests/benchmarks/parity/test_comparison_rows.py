"""What differs becomes a line, and a row that an emulator can be asked."""

import copy
from pathlib import Path
from typing import Any

import pytest

from benchmarks.parity.comparison_rows import Difference, differences, published
from benchmarks.parity.record import EMULATOR, read
from benchmarks.published.asking import Asker
from benchmarks.published.rows import read as read_rows
from trainyard.emulator.server import serve

ASKED = ("a_fail_step_ends_the_execution", "a_pipeline_described", "what_start_refuses",
         "a_function_that_does_not_exist", "model_packages_of_a_group",
         "conditions_choose_a_branch")  # fmt: skip


@pytest.fixture
def kept() -> dict[str, Any]:
    return read(EMULATOR)


def test_a_difference_is_named_with_its_place(kept: dict[str, Any]):
    other = copy.deepcopy(kept)
    ended = other["cases"]["a_fail_step_ends_the_execution"][2]
    ended["answer"] |= {"FailureReason": "other", "New": [1]}
    ended["request"]["ours"] = "is not compared"
    del other["cases"]["what_start_refuses"], other["cases"]["a_batch_transform"][-1]
    last = len(other["cases"]["a_batch_transform"])
    found = list(differences(other, kept))
    assert [(each.case, each.index, each.field, each.there) for each in found] == [
        ("a_batch_transform", last, "answer", None),
        ("a_batch_transform", last, "call", None),
        ("a_fail_step_ends_the_execution", 2, "answer.FailureReason", "other"),
        ("a_fail_step_ends_the_execution", 2, "answer.New", [1]),
    ]
    assert str(found[2]).split("\t") == [
        "a_fail_step_ends_the_execution[2]", "sagemaker.describe_pipeline_execution",
        "answer.FailureReason", '"other"',
        '"Step failure: One or multiple steps failed. Stop: a|1|2.5|true|8"',
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.long
def test_a_published_row_agrees_unless_its_value_differs(kept: dict[str, Any], tmp_path: Path):
    every = [
        Difference(name, index, entry["call"], "answer.Alien", None, "here only")
        for name in ASKED
        for index, entry in enumerate(kept["cases"][name])
    ]
    rows = read_rows("recorded", published(kept, every))
    assert len(rows.rows) == len(every)
    with serve(tmp_path) as endpoint:
        found = Asker(endpoint).judged(rows, rows.rows)
        assert [each["why"] for each in found if each["outcome"] != "agree"] == []
        steps = kept["cases"][ASKED[0]][3]["answer"]["PipelineExecutionSteps"]
        steps[0]["AttemptCount"] = 7
        told = [Difference(ASKED[0], 3, "", "answer.PipelineExecutionSteps.0.EndTime", None, "x")]
        changed = read_rows("changed", published(kept, told))
        [judged] = Asker(endpoint).judged(changed, changed.rows)
    assert judged["outcome"] == "differ" and "AttemptCount" in judged["why"]


def test_a_call_that_needs_a_token_has_no_row(kept: dict[str, Any]):
    name = "a_callback_step_is_answered"
    every = [Difference(name, index, "", "x", 1, 2) for index in range(len(kept["cases"][name]))]
    rows = read_rows("recorded", published(kept, every))
    assert 0 < len(rows.rows) < len(every)
