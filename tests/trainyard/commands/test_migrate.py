"""``trainyard migrate``: the diff that it prints, and its exit status."""

import json
import re
from pathlib import Path

import pytest

from tests.trainyard.migration.test_proof import OLD
from trainyard.commands.migrate import main
from trainyard.terminal import run


def run_migrate(capsys: pytest.CaptureFixture, *arguments: object) -> tuple[str, str, int]:
    with pytest.raises(SystemExit) as end:
        run(main, "trainyard migrate", [str(argument) for argument in arguments])
    out = capsys.readouterr()
    return out.out, out.err, int(end.value.code or 0)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    return tmp_path / "pipeline.py"


def test_a_diff_is_proposed_and_nothing_is_written(capsys, script: Path):
    script.write_text(OLD.read_text())
    out, _, status = run_migrate(capsys, script)
    assert status == 0
    assert "-from sagemaker.estimator import Estimator" in out
    assert "+from sagemaker.train import ModelTrainer" in out
    last = out.splitlines()[-1]
    assert re.fullmatch(
        r"everything is converted; its \d\d imports and calls fit sagemaker 3\S+", last
    )
    assert script.read_text() == OLD.read_text()


def test_what_remains_is_named_and_the_status_is_2(capsys, script: Path):
    script.write_text("from sagemaker.pipeline import PipelineModel\nm = PipelineModel()\n")
    out, _, status = run_migrate(capsys, script, "--json")
    assert status == 2
    assert json.loads(out)["remaining"][0]["line"] == 1


def test_it_is_written_and_a_call_that_cannot_run_is_named_with_the_status_2(capsys, script: Path):
    step = "from sagemaker.workflow.model_step import ModelStep\ns = ModelStep('M', model=m)\n"
    script.write_text(step)
    out, _, status = run_migrate(capsys, script, "--write")
    assert status == 2
    assert "does not fit sagemaker 3." in out
    assert "in the new code: line 2: ModelStep: it has no argument model; missing" in out
    assert out.endswith("everything is converted, 1 of 2 imports and calls do not fit\n")
    assert "sagemaker.mlops.workflow" in script.read_text()


@pytest.mark.parametrize(
    ("text", "option", "said"),
    [
        ("x = 1\ny = (2\n", "--json", "pipeline.py: line 2: '(' was never closed: y = (2"),
        ("", "--prove", "--old-python"),
    ],
)
def test_what_is_wrong_is_named(capsys, script: Path, text: str, option: str, said: str):
    script.write_text(text)
    _, err, status = run_migrate(capsys, script, option)
    assert (status, said in err) == (1, True)
