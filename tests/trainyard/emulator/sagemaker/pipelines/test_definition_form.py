"""Refusals of a definition's form; CreatePipeline itself never fails."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainyard.emulator.harness import (
    ROLE,
    compare,
    condition_step,
    fail_step,
    json_get,
    pipeline,
    process_step,
    train_step,
)
from trainyard.emulator.request_scope import ApiError
from trainyard.emulator.s3.object_store import ObjectStore
from trainyard.emulator.sagemaker.pipelines import pipeline_versions
from trainyard.emulator.sagemaker.pipelines.pipeline_versions import Pipelines
from trainyard.validate import check

DEFINITIONS = Path("tests/trainyard/validate/definitions")


@pytest.fixture(scope="module")
def pipelines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipelines]:
    store = ObjectStore(tmp_path_factory.mktemp("s3"))
    store.create_bucket("bkt")
    yield Pipelines(tmp_path_factory.mktemp("pipelines"), store)
    store.close()


def create(pipelines: Pipelines, text: str) -> str:
    """Return the reason why it is refused; empty if it is not."""
    try:
        pipelines.create({"PipelineName": "p", "RoleArn": ROLE, "PipelineDefinition": text})
    except ApiError as refused:
        assert refused.status == 400
        return refused.message
    pipelines.delete({"PipelineName": "p"})
    return ""


FAULTS = {
    "nothing runs after it": [fail_step("f", "x"), process_step("g", "true", ("f",))],
    "has no member 'Foo'": [{**fail_step("f", "x"), "Foo": 1}],
    "Arguments.Foo": [process_step("p", "true", arguments={"Foo": 1})],
    "RetryPolicies: 'x'": [process_step("p", "true", RetryPolicies="x")],
    "CacheConfig: 'x'": [process_step("p", "true", CacheConfig="x")],
    "CacheConfig": [{**fail_step("f", "x"), "CacheConfig": {"Enabled": True}}],
    "DependsOn: 5": [process_step("p", "true", DependsOn=5)],
    "DisplayName: 5": [process_step("p", "true", DisplayName=5)],
    "Conditions": [condition_step("c", 5, [], [])],  # type: ignore[arg-type]
    "IfSteps: 5": [condition_step("c", [compare("Equals", 1, 1)], 5, [])],  # type: ignore[arg-type]
    "there is no step 'B'": [fail_step("A", {"Get": "Steps.B.Arn"})],
    "there is no parameter 'x'": [fail_step("A", {"Get": "Parameters.x"})],
    "a second step is called 'A'": [condition_step("A", [], [fail_step("A", "")], [])],
    "waits for itself: C → A → C": [
        condition_step("C", [], [process_step("A", "true")], [], DependsOn=["A"])
    ],
    "ForEach.CurrentItem outside": [fail_step("A", {"Get": "ForEach.CurrentItem"})],
    "declares no property file 'm'": [
        process_step("A", "true"),
        fail_step("F", json_get("A", "m", "x")),
    ],
    "'Same' is not a type of step": [{"Name": "A", "Type": "Same"}],
    "at most 100": [
        process_step(
            "p", "true", arguments={"Environment": dict.fromkeys(map(str, range(101)), "")}
        )
    ],
}


@pytest.mark.parametrize("said", FAULTS)
def test_what_aws_refuses_at_create_is_refused_there(pipelines, said: str):
    assert said in create(pipelines, json.dumps(pipeline(FAULTS[said])))


GET_COUNT = {"Get": "Parameters.Count"}
TYPED = [
    {"Name": "Count", "Type": "Integer", "DefaultValue": 3},
    {"Name": "Share", "Type": "Float", "DefaultValue": 0.5},
    {"Name": "Fast", "Type": "Boolean", "DefaultValue": True},
    {"Name": "Kind", "Type": "String", "DefaultValue": "x"},
]
LAMBDA = {
    "Name": "ask",
    "Type": "Lambda",
    "FunctionArn": "arn:aws:lambda:us-east-1:123456789012:function:ask",
    "Arguments": {},
    "OutputParameters": [{"OutputName": "count", "OutputType": "Integer"}],
}
COUNTED = "Steps.ask.OutputParameters['count']"
WRONG_TYPES = {
    "[Parameters.Count] to argument of type [String]": [
        process_step("slow", "sleep 60"),
        process_step("p", "true", ("slow",), arguments={"Environment": {"N": GET_COUNT}}),
    ],
    "[Parameters.Share] to argument of type [String]": [
        train_step("t", "true", arguments={"HyperParameters": {"x": {"Get": "Parameters.Share"}}})
    ],
    "[Parameters.Fast] to argument of type [String]": [
        condition_step(  # in a branch that does not run
            "c",
            [compare("Equals", 1, 2)],
            [
                process_step(
                    "p", "true", arguments={"Environment": {"N": {"Get": "Parameters.Fast"}}}
                )
            ],
            [],
        )
    ],
    f"[{COUNTED}] to argument of type [String]": [
        LAMBDA,
        process_step("p", "true", arguments={"Environment": {"N": {"Get": COUNTED}}}),
    ],
    "[Parameters.Kind] to argument of type [Integer]": [
        train_step(
            "t",
            "true",
            arguments={"StoppingCondition": {"MaxRuntimeInSeconds": {"Get": "Parameters.Kind"}}},
        )
    ],
}


@pytest.mark.parametrize("reference", WRONG_TYPES)
def test_a_reference_of_another_type_is_refused_in_aws_words(pipelines, reference: str):
    """aws/sagemaker-python-sdk#4867: CreatePipeline answers this, before anything has run."""
    text = json.dumps(pipeline(WRONG_TYPES[reference], Parameters=TYPED))
    assert create(pipelines, text).startswith(f"Cannot assign property reference {reference}.")
    found = next(f for f in check(text) if f.answer)
    assert found.severity == "error"
    assert found.why == "CreatePipeline refuses the definition"


def test_a_number_as_text_and_a_number_for_a_number_are_accepted(pipelines):
    text = {"Std:Join": {"On": "", "Values": [GET_COUNT]}}
    steps = [
        process_step("p", "true", arguments={"Environment": {"N": text}}),
        train_step(
            "t", "true", arguments={"StoppingCondition": {"MaxRuntimeInSeconds": GET_COUNT}}
        ),
    ]
    assert create(pipelines, json.dumps(pipeline(steps, Parameters=TYPED))) == ""


@pytest.mark.parametrize(
    ("said", "more"),
    [
        ("$.Foo", {"Foo": 1}),
        ("EnumValues: 5", {"Parameters": [{"Name": "b", "Type": "Integer", "EnumValues": 5}]}),
        ("Parameters: 'x'", {"Parameters": "x"}),
        ("a second parameter is called 'x'", {"Parameters": [{"Name": "x", "Type": "String"}] * 2}),
        ("$.Version: '1'", {"Version": "1"}),
    ],
)
def test_the_top_of_a_definition_is_checked_too(pipelines, said: str, more: dict):
    assert said in create(pipelines, json.dumps(pipeline([fail_step("f", "x")], **more)))


def test_a_parameter_without_a_type_is_a_string_and_may_be_described(pipelines):
    """AWS's JSON schema of definitions: StringParameter requires only its Name."""
    steps = [fail_step("f", {"Get": "Parameters.Where"})]
    entry = {"Name": "Where", "DefaultValue": "s3://b/k", "Description": "the raw data"}
    assert create(pipelines, json.dumps(pipeline(steps, Parameters=[entry]))) == ""
    number = {**entry, "DefaultValue": 5}
    assert "DefaultValue: 5" in create(pipelines, json.dumps(pipeline(steps, Parameters=[number])))


def test_a_text_that_is_too_long_deep_or_no_text_is_refused(pipelines):
    long = json.dumps(pipeline([fail_step("f", "x" * 5_000_000)]))
    assert "at most 1048576 are allowed" in create(pipelines, long)
    deep = json.dumps(pipeline([fail_step("f", "@")]))
    for depth in (pipeline_versions.DEEPEST, 990, 100_000):
        assert "nested deeper" in create(pipelines, deep.replace('"@"', "[" * depth + "]" * depth))
    with pytest.raises(ApiError, match="is not UTF-8"):
        pipeline_versions.decode_definition(b"\xff\xfe", "s3://bkt/d")


@pytest.mark.parametrize("path", sorted(DEFINITIONS.glob("**/*.json")), ids=lambda path: path.stem)
def test_what_the_sdks_write_is_not_refused_for_its_form(path: Path):
    pipeline_versions.check(path.read_text())


STEPS = [
    process_step(
        "shard",
        "true",
        outputs={"out": "s3://bkt/out"},
        CacheConfig={"Enabled": True, "ExpireAfter": "P1D"},
        PropertyFiles=[{"PropertyFileName": "f", "OutputName": "out", "FilePath": "f.json"}],
        RetryPolicies=[{"ExceptionType": ["Step.THROTTLING"], "MaxAttempts": 2}],
    ),
    train_step("train", "true", DependsOn=["shard"]),
    condition_step(
        "gate",
        [
            compare("Equals", {"Get": "Steps.train.TrainingJobName"}, {"Get": "Parameters.p"}),
            {"Type": "Or", "Conditions": [compare("GreaterThan", 1, 2)]},
        ],
        [fail_step("no", {"Std:Join": {"On": "-", "Values": ["a", {"Get": "Parameters.p"}]}})],
        [],
    ),
]
BASE = pipeline(STEPS, Parameters=[{"Name": "p", "Type": "String", "DefaultValue": "x"}])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=4,
) | st.sampled_from([{"Get": "Steps.x.y"}, {"Get": 5}, {"Std:Join": 5}, {"Std:JsonGet": {}}])


def places(value: Any, at: tuple = ()) -> Iterator[tuple]:
    """Iterate over all paths in ``value``, from the outside in."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        yield (*at, key)
        if isinstance(inner, dict | list):
            yield from places(inner, (*at, key))


@given(st.sampled_from(list(places(BASE))), JSON)
def test_no_definition_makes_create_fail_itself(pipelines, place: tuple, value: Any):
    document = copy.deepcopy(BASE)
    target: Any = document
    for key in place[:-1]:
        target = target[key]
    target[place[-1]] = value
    create(pipelines, json.dumps(document))


def test_the_definition_that_is_changed_is_itself_accepted(pipelines):
    assert create(pipelines, json.dumps(BASE)) == ""
