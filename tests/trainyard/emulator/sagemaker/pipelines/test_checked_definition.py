"""What steps wait for, values of parameters, signatures of steps, refusals of CreatePipeline."""

import json
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
from trainyard.emulator.containers.node import OWN_PYTHON
from trainyard.emulator.request_scope import ApiError
from trainyard.emulator.sagemaker.pipelines.checked_definition import (
    Parameter,
    Step,
    build_parameter_values,
    convert_parameter,
    parse_definition,
    refuse_step,
)
from trainyard.emulator.sagemaker.pipelines.step_cache import compute_signature, parse_expiry
from trainyard.language.expressions import format_parameter_value
from trainyard.language.step_types import STEP_TYPES


def read(steps: list, **more: Any):
    return parse_definition(json.dumps(pipeline(steps, **more)))


OUT = {"o": "s3://bkt/o"}
FILE = {"PropertyFileName": "m", "OutputName": "o", "FilePath": "m.json"}


def test_what_a_step_waits_for() -> None:
    get = {"Get": "Steps.A.ProcessingOutputConfig.Outputs['o'].S3Output.S3Uri"}
    value = json_get("A", "m", "x")
    definition = read(
        [
            process_step("A", "true", outputs=OUT, PropertyFiles=[FILE]),
            process_step("B", "true", arguments={"Environment": {"X": get}}),
            condition_step(
                "C", [compare("Equals", value, 1)], [], [fail_step("F", value)], DependsOn=["B"]
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


def test_a_condition_that_is_not_run_names_the_step() -> None:
    with pytest.raises(ApiError, match="step 'C': condition type 'Same'") as caught:
        read([condition_step("C", [{"Type": "Same"}], [], [])])
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
        refuse_step(read([step]).steps["T"], OWN_PYTHON)


def test_a_group_of_another_account_is_refused_before_anything_runs() -> None:
    group = "arn:aws:sagemaker:us-east-1:{}:model-package-group/shared"
    other, own = group.format("111122223333"), group.format("123456789012")

    def register(group: Any) -> dict:
        given = {"ModelPackageGroupName": group}
        return {"Name": "R", "Type": "RegisterModel", "Arguments": given}

    with pytest.raises(ApiError, match=f"step 'R': {other} is in an account that does not exist"):
        refuse_step(read([register(other)]).steps["R"], OWN_PYTHON)
    for found in (own, "shared", {"Get": "Execution.PipelineName"}):
        refuse_step(read([register(found)]).steps["R"], OWN_PYTHON)


# parameters of an execution

KINDS = {
    "String": st.text(),
    "Integer": st.integers(),
    "Float": st.floats(allow_nan=False, allow_infinity=False),
    "Boolean": st.booleans(),
}


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_a_value_survives_being_given_as_text(kind: str, data: st.DataObject) -> None:
    value = data.draw(KINDS[kind])
    got = convert_parameter(Parameter("x", kind), format_parameter_value(value))
    assert got == value
    assert type(got) is type(value)


def test_defaults_fill_in_and_the_order_is_the_definitions() -> None:
    parameters = {"a": Parameter("a", "Integer", 1), "b": Parameter("b", "String", "x")}
    assert list(build_parameter_values(parameters, given_as(b="y")).items()) == [
        ("a", 1),
        ("b", "y"),
    ]


def given_as(**texts: str) -> list[dict]:
    return [{"Name": name, "Value": text} for name, text in texts.items()]


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (given_as(c="1"), r"unknown pipeline parameter 'c'; expected one of \['a', 'e'\]"),
        (given_as(a="1") * 2, "given twice"),
        (given_as(a="1.5"), "'a': '1.5' is not of type Integer"),
        (given_as(a="1", e="z"), "'z' is not one of"),
        ([], "'a' needs a value"),
    ],
)
def test_refused_values(entries: list[dict], message: str) -> None:
    kinds = (Parameter("a", "Integer"), Parameter("e", "String", "x", ("x", "y")))
    with pytest.raises(ApiError, match=message):
        build_parameter_values({parameter.name: parameter for parameter in kinds}, entries)


@pytest.mark.parametrize("text", ["nan", "inf", "", "1,5"])
def test_what_json_cannot_say_is_no_float(text: str) -> None:
    with pytest.raises(ApiError, match="is not of type Float"):
        convert_parameter(Parameter("x", "Float"), text)


# signatures of steps, and expiry of their results

CACHED = {"Enabled": True, "ExpireAfter": "P30D"}


def compute_step_signature(document: dict, **arguments: object) -> str | None:
    """Return the step's signature with these arguments."""
    step = Step(document["Name"], document["Type"], document["Arguments"], document)
    return compute_signature(step, document["Arguments"] | arguments)


def test_an_expiry_that_is_no_duration_is_refused() -> None:
    document = process_step("A", "true", CacheConfig={"Enabled": True, "ExpireAfter": "1x"})
    with pytest.raises(ApiError, match="ISO 8601"):
        parse_expiry(Step("A", "Processing", document["Arguments"], document))


@pytest.mark.parametrize(
    "name", ["AppSpecification", "Environment", "ProcessingInputs", "RoleArn", "Tags"]
)
def test_only_the_documented_attributes_of_processing_count(name: str) -> None:
    document = process_step("A", "true", CacheConfig=CACHED)
    differ = compute_step_signature(document) != compute_step_signature(
        document, **{name: "changed"}
    )
    assert differ == (name in STEP_TYPES["Processing"].cache_key)


def test_the_training_hyperparameters_and_the_steps_name_count() -> None:
    document = train_step("T", "true", CacheConfig=CACHED)
    one = compute_step_signature(document)
    assert one != compute_step_signature(document, HyperParameters={"lr": "1"})
    assert one != compute_step_signature(document | {"Name": "U"})
    assert one == compute_step_signature(document, StoppingCondition={})


def test_no_cache_config_no_signature() -> None:
    assert compute_step_signature(process_step("A", "true")) is None
    assert compute_step_signature(process_step("A", "true", CacheConfig={"Enabled": False})) is None
