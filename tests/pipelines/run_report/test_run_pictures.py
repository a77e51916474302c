"""The pictures of a run's page."""

import copy

import pytest

from conditions.checks.threshold import check_against_threshold
from conditions.verdict import decide_verdict
from pipelines.run_report.run_pictures import (
    BAD,
    FARTHEST,
    _divide_by_threshold,
    draw_budgets,
    draw_champion_margins,
)
from steps.gate import job
from tests.conditions.evidence import CHAMPION, Evidence

DEMANDS = [
    "--look", "1",
    "--superiority", "loss", "lower", "0", "--slice_regression", "loss", "lower", "0.05",
    "--max_calibration_error", "0.2", "--max_leaked_examples", "0", "--max_artifact_mb", "5",
]  # fmt: skip


@pytest.fixture(scope="module")
def gate(tmp_path_factory) -> dict:
    root = Evidence(bad_slice=0.3).write(tmp_path_factory.mktemp("gate"))
    words = ["--primary_metric", "loss", "--direction", "lower", "--champion", CHAMPION]
    return job.judge_evaluation(job.parse_arguments([*words, *DEMANDS, "--root", str(root)]))


def test_comparisons_are_drawn_and_budgets_as_multiples_of_what_is_demanded(gate):
    for picture, shown in (
        (draw_champion_margins(gate), ("all examples", "kind=c", "superiority: +0", BAD,
                                  "slice regression: -0.05", "improvement of loss")),
        (draw_budgets(gate), ("artifact mb: 3 ≤ 5", "effective groups: ",
                                 "leaked examples: 0 ≤ 0")),
    ):  # fmt: skip
        assert [part for part in shown if part not in picture] == []


@pytest.mark.parametrize(
    ("direction", "value", "threshold", "expected"),
    [("lower", 3, 5, 0.6), ("higher", 40, 20, 0.5), ("lower", 0, 0, 0), ("higher", 0, 20, FARTHEST),
     ("lower", 0.1, 0, FARTHEST), ("lower", 99, 5, FARTHEST)],
)  # fmt: skip
def test_left_of_one_passes_whichever_way_is_better(direction, value, threshold, expected):
    check = {"direction": direction, "value": value, "threshold": threshold, "low": None}
    assert _divide_by_threshold(check | {"high": None})["value"] == expected


def test_where_nothing_was_compared_there_is_no_picture_and_an_infinite_limit_is_none(gate):
    without = decide_verdict({}, [check_against_threshold({}, "loss", "lower", 1.0)])
    assert draw_champion_margins(without) is None and draw_budgets(without) is None
    changed = copy.deepcopy(gate)
    for found in (*changed["checks"], *changed["slices"]):
        found["low"] = found["high"] = None
    assert draw_champion_margins(changed) and draw_budgets(changed)
