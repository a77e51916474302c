"""``trainyard validate`` as a user runs it."""

import json
from functools import partial
from pathlib import Path

import boto3
import pytest

from tests.conftest import call_module
from tests.trainyard.emulator.harness import ROLE, cloud, pipeline, process_step
from tests.trainyard.validate.faults import FOLDER

pytestmark = pytest.mark.long

validate = partial(call_module, "trainyard.commands.validate")
WRONG = "Steps[0].Arguments.RoleArn"


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    document = json.loads((FOLDER / "training.json").read_text())
    document["Steps"][0]["Arguments"]["RoleArn"] = "[my] role"  # not to be read as markup
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps(document))
    return path


def test_wrong_file(wrong: Path):
    done = validate(str(wrong))
    assert done.returncode == 1
    assert "Step Train" in done.stdout
    assert f"$.{WRONG}" in done.stdout and "'[my] role' does not match" in done.stdout
    for said in ("why ", "fix ", "from botocore: CreateTrainingJobRequest.RoleArn", "1 error, "):
        assert said in done.stdout
    done = validate(str(wrong), "--json")
    (finding,) = [found for found in json.loads(done.stdout) if found["severity"] == "error"]
    assert done.returncode == 1
    assert (finding["rule"], finding["step"], finding["path"]) == ("pattern", "Train", f"$.{WRONG}")


def test_warnings_alone_are_no_failure(tmp_path: Path):
    document = json.loads((FOLDER / "gate.json").read_text())
    document["Parameters"].append({"Name": "Idle", "Type": "String"})
    (tmp_path / "idle.json").write_text(json.dumps(document))
    done = validate(str(tmp_path / "idle.json"))
    assert done.returncode == 0
    assert "warning" in done.stdout and "0 errors, " in done.stdout


def test_a_valid_file_needs_neither_the_sdk_nor_boto3(run_python):
    code = (
        "import sys; from trainyard.__main__ import main\n"
        f"sys.argv = ['trainyard', 'validate', {str(FOLDER / 'for_each.json')!r}]\n"
        "try: main()\nexcept SystemExit as end: assert not end.code, end\n"
        "print(sorted({'sagemaker', 'boto3', 'torch'} & set(sys.modules)))"
    )
    valid = "valid: 3 steps (ForEach, Lambda) and 1 parameter checked\n"
    assert run_python("-c", code).stdout == f"{valid}[]\n"


@pytest.mark.parametrize("arguments", [(), ("x.json", "--pipeline", "y"), ("no.json",)])
def test_what_to_give_is_said(arguments):
    done = validate(*arguments)
    assert done.returncode == 1
    assert done.stderr.startswith("error:") and done.stdout == ""


def test_a_pipelines_name_stands_for_what_is_deployed(monkeypatch, tmp_path: Path):
    with cloud(tmp_path / "aws") as aws:
        body = json.dumps(pipeline([process_step("Count", "true")]))
        aws.sm.create_pipeline(
            PipelineName="one", PipelineDefinition=body, RoleArn=ROLE, ClientRequestToken="t" * 32
        )
        for name, value in aws.endpoint.env.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)  # another test's has other credentials
        done = validate("--pipeline", "one")
        assert done.stdout.endswith("1 step (Processing) and 0 parameters checked\n"), done.stderr
        none = validate("--pipeline", "nobodys")
        assert none.returncode == 1 and "pipeline nobodys: does not exist in us-" in none.stderr
