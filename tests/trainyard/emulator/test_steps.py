"""Runners of step types: every type has one, or a reason why it has none."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainyard.emulator.api import ApiError
from trainyard.emulator.dag.definition import parse
from trainyard.emulator.dag.execution import Execution
from trainyard.emulator.dag.work import Work
from trainyard.emulator.objects import ObjectStore
from trainyard.emulator.steps import NOT_RUN, RUNNERS, Attempt, Runner
from trainyard.emulator.steps.runner import runs
from trainyard.language.step_types import STEP_TYPES


def definition(kind: str) -> str:
    step = {"Name": "S", "Type": kind, "Arguments": {}}
    return json.dumps({"Version": "2020-12-01", "Steps": [step]})


def test_every_type_runs_or_is_refused_with_a_reason():
    assert set(RUNNERS) | set(NOT_RUN) == set(STEP_TYPES)
    assert not set(RUNNERS) & set(NOT_RUN)


@pytest.mark.parametrize("kind", NOT_RUN)
def test_a_type_that_is_not_run_is_refused_by_name(kind: str):
    with pytest.raises(ApiError, match=f"'S' has type '{kind}', which is not run") as caught:
        parse(definition(kind))
    assert NOT_RUN[kind] in caught.value.message


@pytest.fixture
def functions() -> Iterator[None]:
    """A runner of Lambda steps as an extension would write it; the function adds one."""

    @runs("Lambda")
    class LambdaRunner(Runner):
        def run(self, attempt: Attempt) -> None:
            answer = {"Name": "y", "Value": str(int(attempt.arguments["x"]) + 1)}
            attempt.note({"Arn": attempt.fields["FunctionArn"], "OutputParameters": [answer]})

        def describe(self, made: dict) -> dict:
            return {"OutputParameters": {o["Name"]: o["Value"] for o in made["OutputParameters"]}}

    yield
    del RUNNERS["Lambda"]


def add_one(name: str, x: object) -> dict:
    return {
        "Name": name,
        "Type": "Lambda",
        "FunctionArn": {"Get": "Parameters.Function"},
        "Arguments": {"x": x},
        "OutputParameters": [{"OutputName": "y", "OutputType": "String"}],
    }


def test_registering_a_runner_is_all_that_a_type_needs(functions: None, tmp_path: Path):
    steps = [add_one("B", {"Get": "Steps.A.OutputParameters['y']"}), add_one("A", "1")]
    function = {"Name": "Function", "Type": "String", "DefaultValue": "arn:one"}
    text = json.dumps({"Version": "2020-12-01", "Parameters": [function], "Steps": steps})
    assert parse(text).steps["B"].depends_on == {"A": "Completed"}
    (tmp_path / "definition.json").write_text(text)
    answer = {
        "PipelineArn": "arn:aws:sagemaker:us-east-1:123456789012:pipeline/p",
        "PipelineExecutionArn": "arn:aws:sagemaker:us-east-1:123456789012:pipeline/p/execution/e",
        "PipelineExecutionStatus": "Executing",
        "CreationTime": 0.0,
    }
    record = {"answer": answer, "pipeline": "p", "parameters": {"Function": "arn:one"}, "steps": {}}
    objects, work = ObjectStore(tmp_path / "s3"), Work(services=None)
    execution = Execution(tmp_path, record, work, objects, hit=lambda *_: None)
    execution.start()
    assert execution.wait(30) and answer["PipelineExecutionStatus"] == "Succeeded", record
    made = record["steps"]["B"]["Metadata"]["Lambda"]
    assert made == {"Arn": "arn:one", "OutputParameters": [{"Name": "y", "Value": "3"}]}


@pytest.mark.parametrize(("kind", "why"), [("Fail", "has a runner"), ("Fial", "is not in")])
def test_a_runner_of_a_type_that_has_one_or_is_none_is_refused(kind: str, why: str):
    with pytest.raises(ValueError, match=f"step type '{kind}' of .* {why}"):
        runs(kind)(Runner)
