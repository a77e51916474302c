"""Errors in settings on a command line are reported like a recipe's."""

import pytest

from training import command_line
from training.config import TrainConfig
from trainyard.common.errors import TrainingError

GIVEN = {"max_steps": 1, "learning_rate": 1e-3, "micro_batch": 2, "global_batch": 4}


def refused(world: int, **given: object) -> str:
    with pytest.raises(TrainingError) as found, command_line.explained(world):
        TrainConfig.model_validate(GIVEN | given).micro_batches(world)
    return str(found.value)


def test_each_problem_has_a_line_that_names_its_field():
    assert [
        line.partition(":")[0] for line in refused(1, precision="fp8", seed=-1).splitlines()
    ] == [
        "precision",
        "seed",
    ]
    assert refused(3).startswith("--world 3: global_batch 4 cannot be shared by 3 ranks")


def test_a_value_may_hold_what_divides_it_from_its_field():
    assert command_line.assigned(["a=b=c", "d="]) == {"a": "b=c", "d": ""}
    assert command_line.assigned(None) == {}
    with pytest.raises(TrainingError, match="--set strategy: expected FIELD=VALUE"):
        command_line.assigned(["strategy"])


def test_an_error_of_ours_is_its_message_and_the_status_1(capsys, monkeypatch):
    def command() -> None:
        raise TrainingError("[3] ranks are too few")

    monkeypatch.setattr("sys.argv", ["command"])
    with pytest.raises(SystemExit) as end:
        command_line.run(command)
    assert end.value.code == 1 and capsys.readouterr().err == "error: [3] ranks are too few\n"
