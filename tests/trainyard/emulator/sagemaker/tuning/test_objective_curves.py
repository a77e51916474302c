"""The curves of objectives, and the rules that stop jobs by them."""

from pathlib import Path

import pytest

from trainyard.emulator.logs.log_store import LogStore
from trainyard.emulator.sagemaker.tuning.objective_curves import GROUP, Emissions, Hyperband, Median

METRIC = {"Name": "loss", "Regex": r"loss[=:]\s*([0-9.]+)"}


def curve(tmp_path: Path, *nodes: list[str]) -> Emissions:
    logs = LogStore(tmp_path)
    for number, lines in enumerate(nodes, start=1):
        logs.append(GROUP, f"job/algo-{number}-1", lines)
    found = Emissions(logs, "job", len(nodes), METRIC)
    found.read()
    return found


def test_each_line_with_the_objective_is_a_unit(tmp_path: Path) -> None:
    lines = ["start", "epoch 1 loss=0.5", "[emulator] loss=9", "epoch 2 loss=0.4", "loss=nan"]
    found = curve(tmp_path, lines)
    assert found.values == [0.5, 0.4]


def test_it_is_read_on_where_it_was_left(tmp_path: Path) -> None:
    found = curve(tmp_path, ["loss=3"])
    LogStore(tmp_path).append(GROUP, "job/algo-1-1", ["loss=2"])
    found.read()
    assert found.values == [3.0, 2.0]


def test_the_lines_of_all_nodes_count_as_on_aws(tmp_path: Path) -> None:
    assert curve(tmp_path, ["nothing"], ["loss=3", "loss=2"], ["loss=3"]).values == [3.0, 2.0, 3.0]


def test_the_median_of_running_averages_decides() -> None:
    # averages up to 2: 9, 6, 3; their median is 6
    others = [[10.0, 8.0, 1.0], [7.0, 5.0], [4.0, 2.0]]
    rule = Median(minimize=True)
    assert rule.verdict([9.0, 6.0], 2, others) is None  # as good as the median
    assert "is worse than 6" in (rule.verdict([1.0, 6.1], 2, others) or "")


def test_of_those_that_got_that_far_only() -> None:
    rule = Median(minimize=True)
    assert rule.verdict([5.0, 5.0, 5.0], 3, [[1.0, 1.0], [1.0]]) is None
    assert rule.verdict([5.0, 5.0], 2, [[1.0, 1.0], [1.0]]) is not None


def test_what_is_maximised_is_stopped_when_it_is_less() -> None:
    rule = Median(minimize=False)
    assert rule.verdict([0.6], 1, [[0.5]]) is None
    assert rule.verdict([0.4], 1, [[0.5]]) is not None


def test_rungs_go_from_min_resource_by_threes_up_to_max_resource() -> None:
    assert Hyperband(True, 1, 27).rungs() == [1, 3, 9]
    assert Hyperband(True, 2, 7).rungs() == [2, 6]


@pytest.mark.parametrize("minimize", [True, False])
def test_the_best_third_goes_on(minimize: bool) -> None:
    sign = 1.0 if minimize else -1.0
    rule = Hyperband(minimize, 1, 9)
    others = [[sign * n] for n in range(1, 6)]
    assert rule.verdict([sign * 1.5], 1, others) is None  # number 2 of 6
    assert "number 3 of 6" in (rule.verdict([sign * 2.5], 1, others) or "")


def test_the_first_at_a_rung_goes_on_and_between_rungs_nobody_is_stopped() -> None:
    rule = Hyperband(True, 1, 9)
    assert rule.verdict([100.0], 1, [[]]) is None
    assert rule.verdict([1.0, 100.0], 2, [[0.0, 0.0]] * 5) is None


def test_before_min_resource_nobody_is_stopped() -> None:
    assert Hyperband(True, 3, 9).verdict([100.0], 1, [[0.0]] * 9) is None


def test_after_max_resource_a_job_is_stopped() -> None:
    rule = Hyperband(True, 1, 4)
    assert rule.verdict([1.0] * 4, 4, []) is None  # it may save its model
    assert "MaxResource" in (rule.verdict([1.0] * 5, 5, []) or "")
