"""What counts as an emission of the objective, also when several ranks print it."""

from pathlib import Path

import pytest

from trainyard.emulator.logs import LogStore
from trainyard.emulator.tuning.curves import GROUP, Emissions

METRIC = {"Name": "loss", "Regex": r"loss[=:]\s*([0-9.]+)"}


def curve(tmp_path: Path, *nodes: list[str], metric: dict[str, str] = METRIC) -> Emissions:
    logs = LogStore(tmp_path)
    for number, lines in enumerate(nodes, start=1):
        logs.append(GROUP, f"job/algo-{number}-1", lines)
    found = Emissions(logs, "job", len(nodes), metric)
    found.read()
    return found


def test_each_line_with_the_objective_is_a_unit(tmp_path: Path) -> None:
    lines = ["start", "epoch 1 loss=0.5", "[emulator] loss=9", "epoch 2 loss=0.4", "loss=nan"]
    found = curve(tmp_path, lines)
    assert found.values == [0.5, 0.4] and not found.repeated


def test_it_is_read_on_where_it_was_left(tmp_path: Path) -> None:
    found = curve(tmp_path, ["loss=3"])
    LogStore(tmp_path).append(GROUP, "job/algo-1-1", ["loss=2"])
    found.read()
    assert found.values == [3.0, 2.0]


@pytest.mark.parametrize(
    "lines",
    [
        # ranks that print the reduced value, their own values, with prefixes, interleaved
        ["epoch 1 loss=0.5", "epoch 1 loss=0.5", "epoch 2 loss=0.4", "epoch 2 loss=0.4"],
        ["epoch 1 loss=0.5", "epoch 1 loss=0.7", "epoch 2 loss=0.4", "epoch 2 loss=0.6"],
        ["[rank0]: epoch 1 loss=0.5", "[rank1]: epoch 1 loss=0.5", "[rank0]: epoch 2 loss=0.4"],
        ["epoch 1 loss=0.5", "epoch 2 loss=0.4", "epoch 1 loss=0.5", "epoch 2 loss=0.4"],
        ["loss=0.5", "loss=0.5", "loss=0.4", "loss=0.4"],
        [
            "[1,mpirank:0,algo-1]<stdout>:loss=0.5",
            "[1,mpirank:1,algo-1]<stdout>:loss=0.5",
            "[1,mpirank:0,algo-1]<stdout>:loss=0.4",
        ],
    ],
)
def test_ranks_that_print_the_same_epoch_count_once(tmp_path: Path, lines: list[str]) -> None:
    found = curve(tmp_path, lines)
    assert found.values == [0.5, 0.4]
    assert found.repeated


def test_an_epoch_and_its_steps_are_told_apart(tmp_path: Path) -> None:
    found = curve(
        tmp_path, ["epoch 1 step 10 loss=0.5", "epoch 1 step 20 loss=0.4", "epoch 2 step 10 loss=1"]
    )
    assert found.values == [0.5, 0.4, 1.0] and not found.repeated


def test_a_plateau_is_no_repetition_where_lines_say_the_epoch(tmp_path: Path) -> None:
    found = curve(tmp_path, [f"Epoch: {n}/3, loss: 0.5" for n in (1, 2, 3)])
    assert found.values == [0.5] * 3 and not found.repeated


def test_the_rounds_of_xgboost_are_counted(tmp_path: Path) -> None:
    metric = {"Name": "validation:rmse", "Regex": r".*\[[0-9]+\].*#011validation-rmse:(\S+)"}
    lines = [f"[{n}]#011train-rmse:{n}#011validation-rmse:{n}.5" for n in range(3)]
    assert curve(tmp_path, [*lines, lines[0]], metric=metric).values == [0.5, 1.5, 2.5]


def test_of_several_nodes_the_first_that_printed_counts(tmp_path: Path) -> None:
    found = curve(tmp_path, ["nothing"], ["loss=3", "loss=2"], ["loss=3", "loss=2"])
    assert found.values == [3.0, 2.0]
    assert found.repeated == "loss=3"
