"""Refusals of a definition's form and of its jobs' requests; CreatePipeline itself never fails."""

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
from trainyard.emulator.request_shapes import (
    UndecidedError,
    Unknown,
    find_first_refusal,
    mask_expressions,
)
from trainyard.emulator.s3.object_store import ObjectStore
from trainyard.emulator.sagemaker.jobs.training_job import TrainingJob
from trainyard.emulator.sagemaker.pipelines import pipeline_versions
from trainyard.emulator.sagemaker.pipelines.pipeline_versions import Pipelines
from trainyard.validate import check_definition

PYTHON = Path("/nowhere/bin/python")
DEFINITIONS = Path("tests/trainyard/validate/definitions")


@pytest.fixture(scope="module")
def pipelines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipelines]:
    store = ObjectStore(tmp_path_factory.mktemp("s3"))
    store.create_bucket("bkt")
    yield Pipelines(tmp_path_factory.mktemp("pipelines"), store, PYTHON)
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


TOP = {
    "$.Foo": {"Foo": 1},
    "EnumValues: 5": {"Parameters": [{"Name": "b", "Type": "Integer", "EnumValues": 5}]},
    "Parameters: 'x'": {"Parameters": "x"},
    "a second parameter is called 'x'": {"Parameters": [{"Name": "x", "Type": "String"}] * 2},
    "$.Version: '1'": {"Version": "1"},
}


@pytest.mark.parametrize("said", [*FAULTS, *TOP])
def test_what_aws_refuses_at_create_is_refused_there(pipelines, said: str):
    document = pipeline(FAULTS.get(said, [fail_step("f", "x")]), **TOP.get(said, {}))
    assert said in create(pipelines, json.dumps(document))


def environment(reference: str) -> dict[str, Any]:
    return {"Environment": {"N": {"Get": reference}}}


def make_limited_step(seconds: Any) -> dict[str, Any]:
    stop = {"MaxRuntimeInSeconds": seconds}
    return train_step("t", "true", arguments={"StoppingCondition": stop})


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
        process_step("p", "true", ("slow",), arguments=environment("Parameters.Count")),
    ],
    "[Parameters.Share] to argument of type [String]": [
        train_step("t", "true", arguments={"HyperParameters": {"x": {"Get": "Parameters.Share"}}})
    ],
    "[Parameters.Fast] to argument of type [String]": [  # in a branch that does not run
        condition_step(
            "c",
            [compare("Equals", 1, 2)],
            [process_step("p", "true", arguments=environment("Parameters.Fast"))],
            [],
        )
    ],
    f"[{COUNTED}] to argument of type [String]": [
        LAMBDA,
        process_step("p", "true", arguments=environment(COUNTED)),
    ],
    "[Parameters.Kind] to argument of type [Integer]": [
        make_limited_step({"Get": "Parameters.Kind"})
    ],
}


@pytest.mark.parametrize("reference", WRONG_TYPES)
def test_a_reference_of_another_type_is_refused_in_aws_words(pipelines, reference: str):
    """aws/sagemaker-python-sdk#4867: CreatePipeline answers this, before anything has run."""
    text = json.dumps(pipeline(WRONG_TYPES[reference], Parameters=TYPED))
    assert create(pipelines, text).startswith(f"Cannot assign property reference {reference}.")
    found = next(f for f in check_definition(text) if f.answer)
    assert (found.severity, found.why) == ("error", "CreatePipeline refuses the definition")


def test_a_number_as_text_and_a_number_for_a_number_are_accepted(pipelines):
    assert create(pipelines, json.dumps(BASE)) == "", "what is changed below is itself accepted"
    text = {"Std:Join": {"On": "", "Values": [GET_COUNT]}}
    steps = [
        process_step("p", "true", arguments={"Environment": {"N": text}}),
        make_limited_step(GET_COUNT),
    ]
    assert create(pipelines, json.dumps(pipeline(steps, Parameters=TYPED))) == ""


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
    pipeline_versions.require_valid_definition(path.read_text())


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


# requests of jobs that can never run; what depends on a value is left to the run

GET = {"Get": "Parameters.Where"}
WHERE = {"Name": "Where", "Type": "String", "DefaultValue": "s3://bkt/x"}
S3 = {"S3DataType": "S3Prefix", "S3Uri": GET}
ATHENA = {
    "Catalog": "c", "Database": "d", "QueryString": "q", "OutputS3Uri": "s3://b/k",
    "OutputFormat": "PARQUET",
}  # fmt: skip
TRANSFORM: dict[str, Any] = {
    "ModelName": GET,
    "TransformInput": {"DataSource": {"S3DataSource": S3}},
    "TransformOutput": {"S3OutputPath": GET},
    "TransformResources": {"InstanceType": "ml.m5.large", "InstanceCount": 1},
}
VARIANT = {
    "VariantName": "v",
    "ModelName": GET,
    "InitialInstanceCount": 1,
    "InstanceType": "ml.m5.large",
}


def with_steps(*steps: dict[str, Any]) -> str:
    return json.dumps(pipeline([*steps], Parameters=[WHERE]))


def channel(**more: Any) -> dict[str, Any]:
    return {"ChannelName": "c", "DataSource": {"S3DataSource": S3}, **more}


def train(**arguments: Any) -> dict[str, Any]:
    return train_step(
        "s", "true", arguments={"OutputDataConfig": {"S3OutputPath": GET}, **arguments}
    )


def process(**entry: Any) -> dict[str, Any]:
    return process_step("s", "true", arguments={"ProcessingInputs": [{"InputName": "i", **entry}]})


def transform(**more: Any) -> dict[str, Any]:
    source = TRANSFORM["TransformInput"] | more
    return {"Name": "s", "Type": "Transform", "Arguments": TRANSFORM | {"TransformInput": source}}


def endpoint(more: dict[str, Any], variant: dict[str, Any]) -> dict[str, Any]:
    arguments = {"EndpointConfigName": "e", "ProductionVariants": [VARIANT | variant], **more}
    return {"Name": "s", "Type": "EndpointConfig", "Arguments": arguments}


LOCAL = {"S3Uri": GET, "LocalPath": "/opt/ml/processing/i", "S3DataType": "S3Prefix"}
FILE = {**LOCAL, "S3InputMode": "File"}
PLAIN = {"TrainingImage": "x/pytorch-training:2", "TrainingInputMode": "File"}
DEFINED = {"LocalPath": "/opt/ml/processing/i", "AthenaDatasetDefinition": ATHENA}
ASYNC = {"AsyncInferenceConfig": {"OutputConfig": {"S3OutputPath": GET}}}
SERVERLESS = {"ServerlessConfig": {"MemorySizeInMB": 1024, "MaxConcurrency": 1}}
NO_COMMAND = {"AppSpecification": {"ImageUri": "x/pytorch-training:2"}}
REFUSED = {
    "there is no Athena": process(DatasetDefinition=DEFINED),
    "S3InputMode Pipe": process(S3Input=LOCAL | {"S3InputMode": "Pipe"}),
    "S3CompressionType Gzip": process(S3Input=FILE | {"S3CompressionType": "Gzip"}),
    "has no ContainerEntrypoint": process_step("s", "", arguments=NO_COMMAND),
    "channel 'c': InputMode Pipe": train(InputDataConfig=[channel(InputMode="Pipe")]),
    "channel 'c': CompressionType Gzip": train(InputDataConfig=[channel(CompressionType="Gzip")]),
    f"the sagemaker-training toolkit, which {PYTHON} lacks": train(AlgorithmSpecification=PLAIN),
    "SplitType RecordIO is not supported here": transform(SplitType="RecordIO"),
    "AsyncInferenceConfig": endpoint(ASYNC, {}),
    "variant 'v': ServerlessConfig": endpoint({}, SERVERLESS),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_could_never_run_is_refused_with_its_step(pipelines: Pipelines, message: str) -> None:
    reason = create(pipelines, with_steps(REFUSED[message]))
    assert reason.startswith("step 's': ") and message in reason
    nested = condition_step("c", [compare("Equals", 1, 2)], [REFUSED[message]], [])
    assert create(pipelines, with_steps(nested)) == reason


@pytest.mark.parametrize(
    "step",
    [
        process(S3Input={**LOCAL, "S3InputMode": GET, "S3CompressionType": GET, "LocalPath": GET}),
        process_step("s", "", arguments={"AppSpecification": {"ImageUri": GET}}),
        train(InputDataConfig=[channel(InputMode=GET, CompressionType=GET)]),
        train(AlgorithmSpecification={"TrainingImage": GET, "TrainingInputMode": GET}),
        transform(SplitType=GET),
        endpoint({}, {"InstanceType": GET}),
    ],
)
def test_what_a_value_decides_is_left_to_the_run(pipelines: Pipelines, step: dict) -> None:
    assert create(pipelines, with_steps(step)) == ""


def test_a_check_beyond_one_that_needs_a_value_is_still_made(pipelines: Pipelines) -> None:
    channels = [channel(CompressionType=GET), channel(InputMode=GET, CompressionType="Gzip")]
    assert "Gzip" in create(pipelines, with_steps(train(InputDataConfig=channels)))


REQUEST = train(InputDataConfig=[channel(InputMode="Pipe"), channel(CompressionType="Gzip")])


@given(st.sets(st.sampled_from(list(places(REQUEST["Arguments"]))), max_size=6))
def test_what_is_not_known_is_never_refused(unknown: set[tuple]) -> None:
    """A request with hidden values is never refused unless the whole request is refused, too."""
    whole = REQUEST["Arguments"]
    said = {find_first_refusal([check]) for check in TrainingJob.iter_checks(whole, PYTHON)}
    hidden = copy.deepcopy(whole)
    for way in sorted(unknown, key=len, reverse=True):
        part = hidden
        for key in way[:-1]:
            part = part[key]
        part[way[-1]] = dict(GET)
    reason = find_first_refusal(TrainingJob.iter_checks(mask_expressions(hidden), PYTHON)) or ""
    assert reason.replace(repr(GET), repr("c")) in said | {""}


@pytest.mark.parametrize(
    "ask",
    [bool, str, len, hash, iter, lambda x: x == 1, lambda x: x in ("a", "b"), lambda x: "a" in x,
     lambda x: isinstance(x, str), lambda x: x.startswith("a"), lambda x: x["a"], lambda x: 2 * x,
     lambda x: x > 1, lambda x: f"{x}", {}.get],
)  # fmt: skip
def test_nothing_can_be_asked_of_an_unknown_value(ask: Any) -> None:
    with pytest.raises(UndecidedError):
        ask(Unknown(GET))
    assert repr(Unknown(GET)) == repr(GET)


def test_a_channel_that_names_a_file_is_the_jobs_to_refuse(pipelines: Pipelines) -> None:
    """AWS's own tests register such a model, and only the execution fails."""
    for uri, expected in (("/home/me/model.tar.gz", ""), ("https://b/k", "is not an S3 URI")):
        source = {"S3DataSource": S3 | {"S3Uri": uri}}
        step = train(InputDataConfig=[{"ChannelName": "c", "DataSource": source}])
        found = create(pipelines, with_steps(step))
        assert expected in found
        assert bool(expected) == bool(found), found
