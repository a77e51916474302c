"""What a GitHub Actions job's summary page says of a failed run."""

from pathlib import Path

import pytest

from trainyard.common.errors import TrainyardError
from trainyard.runs.why.cause_display import VARIABLE, add_to_summary
from trainyard.runs.why.diagnosis import diagnose
from trainyard.runs.why.logged_exceptions import of_text


def test_the_cause_is_appended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "summary.md"
    page.write_text("the plan\n")
    monkeypatch.setenv(VARIABLE, str(page))
    add_to_summary([diagnose(of_text("OSError: [Errno 28] No space left on device"))])
    add_to_summary([])
    told = page.read_text()
    assert told.startswith("the plan\n### It failed\n\n```text\nA disk was full (/dev/shm")
    assert "\nfix: Raise the step's volume size" in told and told.endswith("```\n\n")


def test_a_log_cannot_leave_its_fence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "summary.md"
    monkeypatch.setenv(VARIABLE, str(page))
    add_to_summary([diagnose(of_text("ERROR: the flux is low\n````\n# <b>owned</b>\x1b[31m"))])
    fences = [line for line in page.read_text().splitlines() if line.startswith("`")]
    assert fences == ["`````text", "`````"] and "\x1b" not in page.read_text()


def test_outside_of_github_nothing_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    causes = [diagnose(of_text("nothing"))]
    monkeypatch.delenv(VARIABLE, raising=False)
    add_to_summary(causes)
    monkeypatch.setenv(VARIABLE, "/none/such/file")
    with pytest.raises(TrainyardError, match=r"GITHUB_STEP_SUMMARY=/none/such/file: No such"):
        add_to_summary(causes)
