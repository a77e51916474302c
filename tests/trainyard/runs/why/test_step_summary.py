"""What a GitHub Actions job's summary page says of a failed run."""

from pathlib import Path

import pytest

from trainyard.common.errors import TrainyardError
from trainyard.runs.why import step_summary
from trainyard.runs.why.diagnosis import diagnose
from trainyard.runs.why.evidence import of_text


def test_the_cause_is_appended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "summary.md"
    page.write_text("the plan\n")
    monkeypatch.setenv(step_summary.VARIABLE, str(page))
    step_summary.add([diagnose(of_text("OSError: [Errno 28] No space left on device"))])
    step_summary.add([])
    told = page.read_text()
    assert told.startswith("the plan\n### It failed\n\n```text\nA disk was full.\n")
    assert "\nfix: Raise the step's volume size" in told and told.endswith("```\n\n")


def test_a_log_cannot_leave_its_fence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "summary.md"
    monkeypatch.setenv(step_summary.VARIABLE, str(page))
    step_summary.add([diagnose(of_text("ERROR: the flux is low\n````\n# <b>owned</b>\x1b[31m"))])
    fences = [line for line in page.read_text().splitlines() if line.startswith("`")]
    assert fences == ["`````text", "`````"] and "\x1b" not in page.read_text()


def test_outside_of_github_nothing_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    causes = [diagnose(of_text("nothing"))]
    monkeypatch.delenv(step_summary.VARIABLE, raising=False)
    step_summary.add(causes)
    monkeypatch.setenv(step_summary.VARIABLE, "/none/such/file")
    with pytest.raises(TrainyardError, match=r"GITHUB_STEP_SUMMARY=/none/such/file: No such"):
        step_summary.add(causes)
