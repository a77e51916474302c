"""The history: complete since the training's beginning, whatever happened to its processes."""

import json
import logging
from pathlib import Path

import pytest

from training.watching.trackers import Reports


def lines(*steps: int) -> list[dict[str, float]]:
    return [{"step": step, "loss": 1 / step} for step in steps]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints/identity/history.jsonl"


def report_steps(path: Path, steps: range, *, kept: bool = True) -> list[dict[str, float]]:
    """Return the lines of a process that starts after the first step and reports the others."""
    with Reports(path, 0) as reports:
        reports.begin(steps.start)
        for line in lines(*steps[1:]):
            reports.report_metrics(line)
        if kept:
            reports.save_history()
    return reports.history


def test_a_resumed_training_has_every_step_once(path: Path):
    report_steps(path, range(0, 8))
    assert report_steps(path, range(5, 9)) == lines(1, 2, 3, 4, 5, 6, 7, 8)
    assert [json.loads(line) for line in path.read_text().splitlines()] == lines(*range(1, 9))


def test_what_came_after_the_last_checkpoint_is_forgotten_with_it(path: Path):
    report_steps(path, range(0, 4))
    report_steps(path, range(3, 7), kept=False)
    assert report_steps(path, range(3, 5)) == lines(1, 2, 3, 4)


def test_a_training_from_the_beginning_forgets_the_one_before(path: Path):
    report_steps(path, range(0, 4))
    assert report_steps(path, range(0, 3)) == lines(1, 2)


@pytest.mark.parametrize("damage", [b"", b'{"step": 1, "lo', b"\x80", b"7\n", b"{}\n"])
def test_a_damaged_history_is_said_and_does_not_end_the_training(path: Path, damage, caplog):
    caplog.set_level(logging.WARNING)
    report_steps(path, range(0, 4))
    path.write_bytes(damage) if damage else path.unlink()
    assert report_steps(path, range(3, 5)) == lines(4)
    assert f"{path}: the curve begins at step 3" in caplog.text


def test_other_ranks_say_and_write_nothing(path: Path, capsys):
    with Reports(path, 1) as reports:
        reports.begin(0)
        reports.report_metrics({"step": 1, "loss": 1.0})
        reports.save_history()
    assert not path.exists() and capsys.readouterr().out == ""
