"""A benchmark that was interrupted goes on where it was."""

from pathlib import Path

import pytest
import typer

from benchmarks import resumed

pytestmark = pytest.mark.long


def test_what_was_found_is_not_measured_again(tmp_path: Path):
    file, asked = tmp_path / "found.json", []

    def measured(name: str) -> dict:
        asked.append(name)
        if name == "three":
            raise KeyboardInterrupt
        return {"failed": "no GPU"} if name == "one" else {"curve": {1: 0.5}}

    with pytest.raises(KeyboardInterrupt):
        list(resumed.each(["one", "two", "three"], measured, file, {"steps": 1}))
    found = list(resumed.each(["one", "two"], measured, file, {"steps": 1}))
    assert asked == ["one", "two", "three", "one"]
    assert found == [("one", {"failed": "no GPU"}), ("two", {"curve": {"1": 0.5}})]
    with pytest.raises(typer.BadParameter, match="measured with {'steps': 1}"):
        list(resumed.each(["one"], measured, file, {"steps": 2}))
