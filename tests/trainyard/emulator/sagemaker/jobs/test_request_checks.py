"""CreatePipeline refuses what can never run; checks that depend on a value are left to the run."""

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
    pipeline,
    process_step,
    train_step,
)
from trainyard.emulator.request_scope import ApiError
from trainyard.emulator.request_shapes import UndecidedError, Unknown, mask_expressions, refusal
from trainyard.emulator.s3.object_store import ObjectStore
from trainyard.emulator.sagemaker.jobs.training_job import TrainingJob
from trainyard.emulator.sagemaker.pipelines.pipeline_versions import Pipelines

pytestmark = pytest.mark.long

PYTHON = Path("/nowhere/bin/python")
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


@pytest.fixture(scope="module")
def pipelines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipelines]:
    store = ObjectStore(tmp_path_factory.mktemp("s3"))
    yield Pipelines(tmp_path_factory.mktemp("pipelines"), store, PYTHON)
    store.close()


def create(pipelines: Pipelines, steps: list[dict[str, Any]]) -> str:
    """Return the reason why a request is refused; empty if it is not."""
    text = json.dumps(pipeline(steps, Parameters=[WHERE]))
    try:
        pipelines.create({"PipelineName": "p", "RoleArn": ROLE, "PipelineDefinition": text})
    except ApiError as refused:
        return refused.message
    pipelines.delete({"PipelineName": "p"})
    return ""


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
REFUSED = {
    "there is no Athena": process(
        DatasetDefinition={"LocalPath": "/opt/ml/processing/i", "AthenaDatasetDefinition": ATHENA}
    ),
    "S3InputMode Pipe": process(S3Input={**LOCAL, "S3InputMode": "Pipe"}),
    "S3CompressionType Gzip": process(
        S3Input={**LOCAL, "S3InputMode": "File", "S3CompressionType": "Gzip"}
    ),
    "has no ContainerEntrypoint": process_step(
        "s", "", arguments={"AppSpecification": {"ImageUri": "x/pytorch-training:2"}}
    ),
    "channel 'c': InputMode Pipe": train(InputDataConfig=[channel(InputMode="Pipe")]),
    "channel 'c': CompressionType Gzip": train(InputDataConfig=[channel(CompressionType="Gzip")]),
    f"the sagemaker-training toolkit, which {PYTHON} lacks": train(
        AlgorithmSpecification={
            "TrainingImage": "x/pytorch-training:2",
            "TrainingInputMode": "File",
        }
    ),
    "SplitType RecordIO is not run here": transform(SplitType="RecordIO"),
    "AsyncInferenceConfig": endpoint(
        {"AsyncInferenceConfig": {"OutputConfig": {"S3OutputPath": GET}}}, {}
    ),
    "variant 'v': ServerlessConfig": endpoint(
        {}, {"ServerlessConfig": {"MemorySizeInMB": 1024, "MaxConcurrency": 1}}
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_could_never_run_is_refused_with_its_step(pipelines: Pipelines, message: str) -> None:
    reason = create(pipelines, [copy.deepcopy(REFUSED[message])])
    assert reason.startswith("step 's': ") and message in reason
    nested = condition_step("c", [compare("Equals", 1, 2)], [REFUSED[message]], [])
    assert create(pipelines, [nested]) == reason


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
    assert create(pipelines, [step]) == ""


def test_a_check_beyond_one_that_needs_a_value_is_still_made(pipelines: Pipelines) -> None:
    channels = [channel(CompressionType=GET), channel(InputMode=GET, CompressionType="Gzip")]
    assert "Gzip" in create(pipelines, [train(InputDataConfig=channels)])


REQUEST = train(InputDataConfig=[channel(InputMode="Pipe"), channel(CompressionType="Gzip")])


def places(value: Any, at: tuple = ()) -> Iterator[tuple]:
    """Iterate over paths to each value that an expression can replace."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items if isinstance(value, dict | list) else ():
        yield (*at, key)
        if isinstance(item, dict | list):
            yield from places(item, (*at, key))


@given(st.sets(st.sampled_from(list(places(REQUEST["Arguments"]))), max_size=6))
def test_what_is_not_known_is_never_refused(unknown: set[tuple]) -> None:
    """A request with hidden values is never refused unless the whole request is refused, too."""
    whole = REQUEST["Arguments"]
    said = {refusal([check]) for check in TrainingJob.checks(whole, PYTHON)}
    hidden = copy.deepcopy(whole)
    for way in sorted(unknown, key=len, reverse=True):
        part = hidden
        for key in way[:-1]:
            part = part[key]
        part[way[-1]] = dict(GET)
    reason = refusal(TrainingJob.checks(mask_expressions(hidden), PYTHON)) or ""
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
        found = create(pipelines, [step])
        assert expected in found
        assert bool(expected) == bool(found), found
