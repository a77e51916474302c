"""The night's run: each part is run, counted and kept; a failure does not end it."""

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from scripts import night

TESTS = """
import pytest

def test_passes(): pass
def test_fails(): assert 1 == 2
def test_is_skipped(): pytest.skip("no engine")
"""


@pytest.fixture
def run_night(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return a function that runs a night of three parts: tests, a failing command, another."""
    monkeypatch.setattr(night, "RESULTS", tmp_path / "night")
    (tmp_path / "test_three.py").write_text(TESTS)
    report = night.Part("three tests", ()).report_file
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path))
    append = f"open({str(tmp_path / 'runs')!r}, 'a').write('.')"
    parts = [
        night.Part("three tests", (*command, f"--junitxml={report}")),
        night.Part("command", (sys.executable, "-c", "raise SystemExit(3)")),
        night.Part("last", (sys.executable, "-c", append)),
    ]
    monkeypatch.setattr(night, "list_parts", lambda pytest, torches: parts)

    def run(*options: str):
        app = night.typer.Typer()
        app.command()(night.main)
        monkeypatch.setattr(night.console, "file", None)
        result = CliRunner().invoke(app, options)
        return result.exit_code, result.output, (tmp_path / "runs").read_text()

    return run


def test_the_night_runs_each_part_and_says_what_failed(run_night) -> None:
    status, output, runs = run_night()
    assert (status, runs) == (1, ".")
    table, _, _ = output.partition("The files that took longest")
    lines = [line.split("│")[1:-2] for line in table.splitlines() if line.startswith("│")]
    assert [[cell.strip() for cell in line] for line in lines] == [
        ["three tests", "3", "1", "1"],
        ["command", "", "", "yes"],
        ["last", "", "", "0"],
        ["all", "", "", ""],
    ]
    assert "failed in three tests: " in output
    assert "test_three.py::test_fails" in output


def test_a_night_of_another_commit_is_not_resumed(run_night) -> None:
    run_night()
    (night.RESULTS / "commit").write_text("0" * 40)
    status, output, runs = run_night("--resume")
    assert (status, runs) == (2, ".")
    assert "is of another commit" in output


def test_a_resumed_night_runs_only_what_has_not_ended(run_night) -> None:
    run_night()
    (night.RESULTS / "last.end").unlink()
    status, output, runs = run_night("--resume")
    assert (status, runs) == (1, "..")
    assert "test_three.py::test_fails" in output
