"""A job's command line prints an error of ours as its message alone."""

import pytest

from training import command_line
from trainyard.common.errors import TrainingError


def test_an_error_of_ours_is_its_message_and_the_status_1(capsys, monkeypatch):
    def command() -> None:
        raise TrainingError("[3] ranks are too few")

    monkeypatch.setattr("sys.argv", ["command"])
    with pytest.raises(SystemExit) as end:
        command_line.run(command)
    assert end.value.code == 1 and capsys.readouterr().err == "error: [3] ranks are too few\n"
