"""The benchmark runs, and sees a leak."""

import dataclasses
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks import endurance

pytestmark = pytest.mark.sweep


@pytest.fixture(scope="module")
def looks(tmp_path_factory: pytest.TempPathFactory) -> list[endurance.Look]:
    file: Path = tmp_path_factory.mktemp("endurance") / "looks.json"
    app = endurance.typer.Typer()
    app.command()(endurance.main)
    done = CliRunner().invoke(app, ["--executions", "11", "--stages", "1", "--json", str(file)])
    assert done.exit_code == 0, done.output
    return [endurance.Look(**look) for look in json.loads(file.read_text())]


def test_each_look_counts_what_was_run(looks: list[endurance.Look]):
    assert [look.executions for look in looks] == [endurance.ALONE, 11]
    assert [look.jobs for look in looks] == [2 * endurance.ALONE, 22]
    assert all(look.resident_mb > 10 and look.execution_s > 0 for look in looks)


@pytest.mark.parametrize("name", ["descriptors", "threads", "children"])
def test_one_more_than_at_the_start_is_a_leak(looks: list[endurance.Look], name: str):
    leaked = dataclasses.replace(looks[0], **{name: getattr(looks[0], name) + 1})
    assert endurance.steady(looks)
    assert not endurance.steady([looks[0], leaked])
