"""Refusals of CreatePipeline, and dependencies between steps."""

import json
import random
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainyard.emulator.harness import (
    compare,
    condition_step,
    fail_step,
    json_get,
    pipeline,
    process_step,
    train_step,
)
from trainyard.emulator.api import ApiError
from trainyard.emulator.pipelines.checked_definition import parse, refuse
from trainyard.emulator.runtime.interpreter import OWN


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


@given(st.integers(2, 8), st.randoms(use_true_random=False))
def test_a_cycle_is_refused_and_a_dag_is_not(count: int, rng: random.Random) -> None:
    edges = {n: [m for m in range(n) if rng.random() < 0.4] for n in range(count)}
    order = list(range(count))
    rng.shuffle(order)

    def steps(edges: dict[int, list[int]]) -> list[dict]:
        return [process_step(f"s{n}", "true", tuple(f"s{m}" for m in edges[n])) for n in order]

    assert len(read(steps(edges)).steps) == count
    first, last = sorted(rng.sample(range(count), 2))
    edges[last].append(first)
    edges[first].append(last)
    with pytest.raises(ApiError, match="waits for itself: s"):
        read(steps(edges))


def test_a_condition_must_not_wait_for_its_own_branch() -> None:
    inner = process_step("A", "true")
    with pytest.raises(ApiError, match="waits for itself"):
        read([condition_step("C", [], [inner], [], DependsOn=["A"])])


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([], "at least one step"),
        ([{"Name": "A b", "Type": "Fail"}], "step name 'A b'"),
        (
            [{"Name": "L", "Type": "Lineage", "Arguments": {}}],
            "'L' has type 'Lineage', which is not run",
        ),
        ([fail_step("A", ""), fail_step("A", "")], "duplicate step name 'A'"),
        ([condition_step("C", [], [fail_step("C", "")], [])], "duplicate step name 'C'"),
        ([condition_step("C", [], fail_step("A", ""), [])], "'C': IfSteps must be a list"),
        ([fail_step("A", {"Get": "Parameters.x"})], "'A' refers to parameter 'x'"),
        ([fail_step("A", {"Get": "ForEach.CurrentItem"})], "ForEach is not run by this emulator"),
        ([fail_step("A", {"Get": "Steps.B.Arn"})], "'A' refers to step 'B', which does not exist"),
        ([process_step("A", "true", ("B",))], "'A' refers to step 'B'"),
        ([process_step("A", "true", ({"Step": "B", "Trigger": "Never"},))], "Trigger, one of"),
        ([fail_step("A", {"Get": "Execution.Name"})], "step 'A': Get 'Execution.Name'"),
        ([condition_step("C", [{"Type": "Same"}], [], [])], "step 'C': condition type 'Same'"),
        (
            [process_step("A", "", outputs=OUT, PropertyFiles=[file(output="x")])],
            "names output 'x'",
        ),
        (
            [
                process_step(
                    "A",
                    "",
                    PropertyFiles=[file()],
                    arguments={"ProcessingOutputConfig": {"Outputs": [[]]}},
                )
            ],
            "names output 'o', expected one of",
        ),
        (
            [process_step("A", "", outputs=OUT, PropertyFiles=[file(), file()])],
            "duplicate property file",
        ),
        (
            [process_step("A", "", outputs=OUT), fail_step("F", json_get("A", "m", "x"))],
            "'m', which step 'A' does not declare",
        ),
    ],
)
def test_refused_definitions_name_the_step(steps: list, message: str) -> None:
    with pytest.raises(ApiError, match=message) as caught:
        read(steps)
    assert caught.value.code == "ValidationException"


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"Version": "2020-12-01"}', '{"Version": "1", "Steps": []}']
)
def test_what_is_no_definition_is_refused(text: str) -> None:
    with pytest.raises(ApiError, match="(?i)pipeline ?definition"):
        parse(text)


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
        refuse(read([step]).steps["T"], OWN)


def test_a_group_of_another_account_is_refused_before_anything_runs() -> None:
    group = "arn:aws:sagemaker:us-east-1:{}:model-package-group/shared"
    other, own = group.format("111122223333"), group.format("123456789012")

    def register(group: Any) -> dict:
        given = {"ModelPackageGroupName": group}
        return {"Name": "R", "Type": "RegisterModel", "Arguments": given}

    with pytest.raises(ApiError, match=f"step 'R': {other} is in an account that does not exist"):
        refuse(read([register(other)]).steps["R"], OWN)
    for found in (own, "shared", {"Get": "Execution.PipelineName"}):
        refuse(read([register(found)]).steps["R"], OWN)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ([{"Name": "x", "Type": "Number"}], "'x' has Type 'Number'"),
        ([{"Name": "x", "Type": {"Get": "Parameters.y"}}], "'x' has Type {'Get'"),
        ([{"Name": "x", "Type": "String"}] * 2, "duplicate parameter name 'x'"),
        (
            [{"Name": "x", "Type": "Integer", "DefaultValue": "1"}],
            "'1' is not of type Integer",
        ),
        ([{"Name": "x", "Type": "Float", "DefaultValue": True}], "is not of type Float"),
        ([{"Name": "x", "Type": "String", "DefaultValue": "c", "EnumValues": ["a"]}], "not one of"),
        ([{"Type": "String"}], "has no Name"),
    ],
)
def test_refused_parameters(parameters: list, message: str) -> None:
    with pytest.raises(ApiError, match=message):
        read([fail_step("F", "x")], Parameters=parameters)
