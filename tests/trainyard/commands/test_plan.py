"""``trainyard plan`` over a file, a pipeline, and the one against the other."""

import json
from pathlib import Path

import boto3
import pytest

from tests.conftest import call_module
from tests.trainyard.emulator.harness import ROLE, cloud, pipeline, process_step

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory):
    """An AWS in which the pipeline ``made`` ran once."""
    with cloud(tmp_path_factory.mktemp("aws")) as running:
        body = json.dumps(definition())
        running.sm.create_pipeline(
            PipelineName="made", PipelineDefinition=body, RoleArn=ROLE, ClientRequestToken="t" * 32
        )
        assert running.run("made")[0]["PipelineExecutionStatus"] == "Succeeded"
        yield running


def definition(value: str = "1") -> dict:
    cached = {"CacheConfig": {"Enabled": True, "ExpireAfter": "P1D"}}
    make = process_step("Make", "true", **cached)
    show = process_step("Show", "true", **cached)
    show["Arguments"]["Environment"] = {"VALUE": value}
    return pipeline([make, show])


@pytest.fixture
def plan(monkeypatch, aws, tmp_path: Path):
    """Runs the verb over a definition, given as a file, and further arguments."""

    for name, value in aws.endpoint.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)  # another test's has other credentials

    def run(document: dict | None, *arguments: str):
        file = tmp_path / "other.json"
        file.write_text(json.dumps(document))
        files = [str(file)] if document else []
        return call_module("trainyard.commands.plan", *files, *arguments)

    return run


def test_a_file_against_what_is_deployed_and_its_next_run(plan):
    same = plan(definition(), "--pipeline", "made")
    assert (same.returncode, same.stderr) == (0, "") and "made in us-" in same.stdout
    assert "no change" in same.stdout
    other = plan(definition("2"), "--pipeline", "made")
    assert other.returncode == 2
    assert "1 step changed" in other.stdout and "~ Environment.VALUE   1 → 2" in other.stdout
    told = json.loads(plan(definition("2"), "--pipeline", "made", "--json").stdout)
    answers = {step["step"]: step["answer"] for step in told["steps"]}
    assert answers == {"Make": "cached", "Show": "runs"}
    told = json.loads(plan(None, "--pipeline", "made", "--json").stdout)
    assert {step["answer"] for step in told["steps"]} == {"cached"}
    assert told["diff"] == {"pipeline": [], "parameters": [], "steps": []}


def test_a_file_alone_is_a_pipeline_that_is_new(plan):
    done = plan(definition(), "--region", "us-east-1")
    assert done.returncode == 2, done.stderr
    assert done.stdout.startswith("pipeline other in us-east-1: is new, with 2 steps")


def test_what_is_no_definition_is_not_planned(plan):
    for document, arguments, said in (
        (None, (), "DEFINITION or --pipeline NAME is missing"),
        (None, ("--pipeline", "nobodys"), "pipeline nobodys: does not exist in"),
        ({"Version": "1"}, (), "$.Version: '1', expected '2020-12-01'"),
    ):
        done = plan(document, *arguments)
        assert done.returncode == 1 and said in done.stderr
