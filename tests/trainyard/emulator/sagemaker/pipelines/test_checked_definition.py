"""Refusals of CreatePipeline, and dependencies between steps."""

import json
import re
from typing import Any

import pytest

from tests.trainyard.emulator.harness import (
    compare,
    condition_step,
    fail_step,
    json_get,
    pipeline,
    process_step,
    train_step,
)
from trainyard.emulator.containers.node import OWN_PYTHON
from trainyard.emulator.request_scope import ApiError
from trainyard.emulator.sagemaker.pipelines.checked_definition import parse, refuse


def read(steps: list, **more: Any):
    return parse(json.dumps(pipeline(steps, **more)))


def file(name: str = "m", output: str = "o") -> dict:
    return {"PropertyFileName": name, "OutputName": output, "FilePath": "m.json"}


OUT = {"o": "s3://bkt/o"}


def test_what_a_step_waits_for() -> None:
    get = {"Get": "Steps.A.ProcessingOutputConfig.Outputs['o'].S3Output.S3Uri"}
    nested = fail_step("F", json_get("A", "m", "x"))
    definition = read(
        [
            process_step("A", "true", outputs=OUT, PropertyFiles=[file()]),
            process_step("B", "true", arguments={"Environment": {"X": get}}),
            condition_step(
                "C", [compare("Equals", json_get("A", "m", "x"), 1)], [], [nested], DependsOn=["B"]
            ),
            process_step("D", "true", depends_on=({"Step": "B", "Trigger": "Failed"}, "A")),
        ]
    )
    waits = {step.name: step.depends_on for step in definition.steps.values()}
    assert waits == {
        "A": {},
        "B": {"A": "Completed"},
        "C": {"A": "Completed", "B": "Completed"},
        "F": {"A": "Completed"},
        "D": {"B": "Failed", "A": "Completed"},
    }
    assert definition.steps["F"].branch == ("C", False)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (
            [{"Name": "L", "Type": "Lineage", "Arguments": {}}],
            "'L' has type 'Lineage', which is not run",
        ),
        ([condition_step("C", [{"Type": "Same"}], [], [])], "step 'C': condition type 'Same'"),
    ],
)
def test_what_is_not_run_names_the_step(steps: list, message: str) -> None:
    with pytest.raises(ApiError, match=message) as caught:
        read(steps)
    assert caught.value.code == "ValidationException"


def test_members_of_newer_sdks_are_tolerated() -> None:
    read(
        [fail_step("F", "x")],
        MlflowConfig=None,
        PipelineExperimentConfig={"TrialName": {"Get": "Execution.PipelineExecutionId"}},
    )


@pytest.mark.parametrize(
    ("member", "value", "said"),
    [
        ("PipelineExperimentConfig", {"TrialName": {"Get": "x"}}, "'x'"),
        ("PipelineExperimentConfig", {"TrialName": {"Get": "Parameters.x"}}, "Parameters.x is"),
        ("PipelineExperimentConfig", {"TrialName": {"Get": "Steps.F.x"}}, "Steps.F is neither"),
        ("PipelineExperimentConfig", {"Trial": "t"}, r"\['Trial'\]: expected ExperimentName"),
        ("PipelineExperimentConfig", "e", "'e': expected ExperimentName and TrialName"),
        ("MlflowConfig", {"MlflowExperimentName": "e"}, "no MLflow tracking server"),
    ],
)
def test_what_the_pipeline_asks_for_and_cannot_have_is_refused(member, value, said) -> None:
    with pytest.raises(ApiError, match=f"{member}.*{said}"):
        read([fail_step("F", "x")], **{member: value})


@pytest.mark.parametrize("image", ["me/own:1", 7, ["me/own:1"]])
def test_an_unknown_image_is_refused_with_step_and_image(image: Any) -> None:
    step = train_step("T", "true")
    step["Arguments"]["AlgorithmSpecification"]["TrainingImage"] = image
    with pytest.raises(ApiError, match=re.escape(f"step 'T': image {image!r}")):
        refuse(read([step]).steps["T"], OWN_PYTHON)


def test_a_group_of_another_account_is_refused_before_anything_runs() -> None:
    group = "arn:aws:sagemaker:us-east-1:{}:model-package-group/shared"
    other, own = group.format("111122223333"), group.format("123456789012")

    def register(group: Any) -> dict:
        given = {"ModelPackageGroupName": group}
        return {"Name": "R", "Type": "RegisterModel", "Arguments": given}

    with pytest.raises(ApiError, match=f"step 'R': {other} is in an account that does not exist"):
        refuse(read([register(other)]).steps["R"], OWN_PYTHON)
    for found in (own, "shared", {"Get": "Execution.PipelineName"}):
        refuse(read([register(found)]).steps["R"], OWN_PYTHON)
