"""``trainyard validate`` as a user runs it."""

import json
import resource
from pathlib import Path

import pytest

from tests.trainyard.emulator.harness import ROLE, cloud, pipeline, process_step
from tests.trainyard.validate.faults import FOLDER, load

pytestmark = pytest.mark.long

WRONG = "Steps[0].Arguments.RoleArn"


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    document = json.loads((FOLDER / "training.json").read_text())
    document["Steps"][0]["Arguments"]["RoleArn"] = "[my] role"  # not to be read as markup
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps(document))
    return path


def test_valid_file(run_python):
    done = run_python("-m", "trainyard", "validate", str(FOLDER / "for_each.json"))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "valid: 3 steps (ForEach, Lambda) and 1 parameter checked\n"


def test_wrong_file(run_python, wrong: Path):
    done = run_python("-m", "trainyard", "validate", str(wrong))
    assert done.returncode == 1
    assert "Step Train" in done.stdout
    assert f"$.{WRONG}" in done.stdout and "'[my] role' does not match" in done.stdout
    for said in ("why ", "fix ", "from botocore: CreateTrainingJobRequest.RoleArn", "1 error, "):
        assert said in done.stdout


def test_json(run_python, wrong: Path):
    done = run_python("-m", "trainyard", "validate", str(wrong), "--json")
    (finding,) = [found for found in json.loads(done.stdout) if found["severity"] == "error"]
    assert done.returncode == 1
    assert (finding["rule"], finding["step"], finding["path"]) == ("pattern", "Train", f"$.{WRONG}")


def test_warnings_alone_are_no_failure(run_python, tmp_path: Path):
    document = json.loads((FOLDER / "gate.json").read_text())
    document["Parameters"].append({"Name": "Idle", "Type": "String"})
    (tmp_path / "idle.json").write_text(json.dumps(document))
    done = run_python("-m", "trainyard", "validate", str(tmp_path / "idle.json"))
    assert done.returncode == 0
    assert "warning" in done.stdout and "0 errors, " in done.stdout


def test_a_file_needs_neither_the_sdk_nor_boto3(run_python):
    code = (
        "import sys; from trainyard.__main__ import main\n"
        f"sys.argv = ['trainyard', 'validate', {str(FOLDER / 'gate.json')!r}]\n"
        "try: main()\nexcept SystemExit as end: assert not end.code, end\n"
        "print(sorted({'sagemaker', 'boto3', 'torch'} & set(sys.modules)))"
    )
    assert run_python("-c", code).stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("arguments", [(), ("x.json", "--pipeline", "y"), ("no.json",)])
def test_what_to_give_is_said(run_python, arguments):
    done = run_python("-m", "trainyard", "validate", *arguments)
    assert done.returncode == 1
    assert done.stderr.startswith("error:") and done.stdout == ""


def test_fifty_steps_cost_at_most_twice_five(run_python, tmp_path: Path):
    def cost(steps: int) -> float:
        """CPU seconds of the whole process."""
        step = load("training")["Steps"][0]
        document = dict(load("training"), Steps=[dict(step, Name=f"S{n}") for n in range(steps)])
        path = tmp_path / f"{steps}.json"
        path.write_text(json.dumps(document))
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert run_python("-m", "trainyard", "validate", str(path)).returncode == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    first = cost(5)  # the modules' bytecode is written once
    assert cost(50) <= 2 * min(first, cost(5))


def test_a_pipelines_name_stands_for_what_is_deployed(run_python, tmp_path: Path):
    with cloud(tmp_path / "aws") as aws:
        body = json.dumps(pipeline([process_step("Count", "true")]))
        aws.sm.create_pipeline(
            PipelineName="one", PipelineDefinition=body, RoleArn=ROLE, ClientRequestToken="t" * 32
        )
        verb = ("-m", "trainyard", "validate", "--pipeline")
        done = run_python(*verb, "one", env=aws.endpoint.env)
        assert done.stdout.endswith("1 step (Processing) and 0 parameters checked\n"), done.stderr
        none = run_python(*verb, "nobodys", env=aws.endpoint.env)
        assert none.returncode == 1 and "pipeline nobodys: does not exist in us-" in none.stderr
