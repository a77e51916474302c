"""Runners of step types: every type has one, or a reason why it has none."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from trainyard.emulator.iam.authority import Authority
from trainyard.emulator.request_scope import ApiError
from trainyard.emulator.s3.object_store import ObjectStore
from trainyard.emulator.sagemaker.pipelines.checked_definition import parse_definition
from trainyard.emulator.sagemaker.pipelines.running_execution import Execution, Work
from trainyard.emulator.sagemaker.pipelines.steps import NOT_RUN, RUNNERS, Attempt, Runner
from trainyard.emulator.sagemaker.pipelines.steps.runner import runs
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
        parse_definition(definition(kind))
    assert NOT_RUN[kind] in caught.value.message


@pytest.fixture
def adding() -> Iterator[None]:
    """Add a runner as an extension would, for a type without one."""

    @runs("ClarifyCheck")
    class AddingRunner(Runner):
        def run(self, attempt: Attempt) -> None:
            answer = {"Name": "y", "Value": str(int(attempt.arguments["x"]) + 1)}
            attempt.note({"Model": attempt.fields["ModelName"], "Outputs": [answer]})

        def describe(self, made: dict) -> dict:
            return {"Outputs": {o["Name"]: o["Value"] for o in made["Outputs"]}}

    yield
    del RUNNERS["ClarifyCheck"]


def add_one(name: str, x: object) -> dict:
    model = {"Get": "Parameters.Model"}
    return {"Name": name, "Type": "ClarifyCheck", "ModelName": model, "Arguments": {"x": x}}


def test_registering_a_runner_is_all_that_a_type_needs(adding: None, tmp_path: Path):
    steps = [add_one("B", {"Get": "Steps.A.Outputs['y']"}), add_one("A", "1")]
    model = {"Name": "Model", "Type": "String", "DefaultValue": "one"}
    text = json.dumps({"Version": "2020-12-01", "Parameters": [model], "Steps": steps})
    assert parse_definition(text).steps["B"].depends_on == {"A": "Completed"}
    (tmp_path / "definition.json").write_text(text)
    answer = {
        "PipelineArn": "arn:aws:sagemaker:us-east-1:123456789012:pipeline/p",
        "PipelineExecutionArn": "arn:aws:sagemaker:us-east-1:123456789012:pipeline/p/execution/e",
        "PipelineExecutionStatus": "Executing",
        "CreationTime": 0.0,
        "RoleArn": "arn:aws:iam::123456789012:role/r",
    }
    record = {"answer": answer, "pipeline": "p", "parameters": {"Model": "one"}, "steps": {}}
    objects = ObjectStore(tmp_path / "s3")
    work = Work(SimpleNamespace(aws=SimpleNamespace(authority=Authority(objects))))
    execution = Execution(tmp_path, record, work, objects, list_runs=lambda _: [])
    execution.start()
    execution.wait()
    assert answer["PipelineExecutionStatus"] == "Succeeded", record
    made = record["steps"]["B"]["Metadata"]["ClarifyCheck"]
    assert made == {"Model": "one", "Outputs": [{"Name": "y", "Value": "3"}]}


@pytest.mark.parametrize(("kind", "why"), [("Fail", "has a runner"), ("Fial", "is not in")])
def test_a_runner_of_a_type_that_has_one_or_is_none_is_refused(kind: str, why: str):
    with pytest.raises(ValueError, match=f"step type '{kind}' of .* {why}"):
        runs(kind)(Runner)
