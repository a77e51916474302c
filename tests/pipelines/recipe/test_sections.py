"""What a recipe's sections say of data, searches and scripts, and what follows for a definition."""

import json
from pathlib import Path

import boto3
import pytest
from botocore.validate import ParamValidator

from pipelines.compile.training_inputs import build_loop_parts
from pipelines.endpoint.endpoint_requests import (
    Release,
    build_alarm_requests,
    build_config_request,
    build_deployment_config,
    build_model_request,
)
from pipelines.recipe.read_recipe import load_recipe
from pipelines.recipe.sections import Packages
from pipelines.registry.ledger import describe_test_split, find_test_channels
from tests.conftest import CHECKOUT
from tests.pipelines.recipe.test_refusals import ARN, CODE, RATE, SCRIPT, SHARDS, WEB
from tests.pipelines.test_definition import document as of_definition
from trainyard.common.errors import RecipeError
from trainyard.language.definition_document import iter_steps

LAPTOP = Path("recipes/laptop.yaml")


def inputs(*given: str, changes: str = "[]") -> str:
    return f"data={{inputs: [{', '.join(given)}], weight_changes: {changes}}}"


def document(*overrides: str) -> dict:
    return of_definition("recipes/laptop.yaml", *overrides)


def arguments(body: dict) -> dict[str, dict]:
    return {step.name: step.arguments for step in iter_steps(body["Steps"])}


def test_each_input_is_a_folder_of_the_shard_job_and_a_slice_of_the_evaluation():
    found = document(inputs(WEB, CODE, changes="[{step: 9, weights: {code: 1}}]"))
    steps = arguments(found)
    places = {
        one["InputName"]: (one["S3Input"]["S3Uri"], one["S3Input"]["LocalPath"])
        for one in steps["Shard"]["ProcessingInputs"]
        if one["InputName"] != "code"
    }
    assert places == {
        "raw-web": ("s3://corpus/raw/web/", "/opt/ml/processing/input/raw/web"),
        "raw-code": ("s3://corpus/raw/code/", "/opt/ml/processing/input/raw/code"),
    }
    words = steps["Shard"]["AppSpecification"]["ContainerArguments"]
    assert words[words.index("--inputs") + 1 :][:2] == ["web", "code"]
    assert json.loads(steps["Train"]["HyperParameters"]["mixture"]) == {
        "weights": {"web": 0.7, "code": 0.3},
        "changes": [{"step": 9, "weights": {"code": 1.0}}],
    }
    words = steps["Evaluate"]["AppSpecification"]["ContainerArguments"]
    assert words[words.index("--slices") + 1] == "source"
    assert "InputUri" not in {parameter["Name"] for parameter in found["Parameters"]}


def test_weights_shape_the_training_by_their_ratio_and_neither_shards_nor_looks():
    """A look at the test split knows all inputs, by their places."""
    ratio = CODE.replace("0.3", "3"), WEB.replace("0.7", "7")
    some = (WEB, CODE), ratio, (WEB, CODE.replace("0.3", "0.2")), (WEB,)
    names = [
        build_loop_parts(load_recipe(LAPTOP, [inputs(*one)]), None, CHECKOUT).name for one in some
    ]
    assert names[0] == names[1] and len({*names}) == 3
    mixed, turned, other, web = (arguments(document(inputs(*one))) for one in some)
    assert mixed["Shard"] == other["Shard"]
    checkpoints = {one["Train"]["CheckpointConfig"]["S3Uri"] for one in (mixed, other)}
    assert len(checkpoints) == 2
    assert (
        describe_test_split(mixed["Shard"])
        == describe_test_split(turned["Shard"])
        != describe_test_split(web["Shard"])
    )
    assert describe_test_split(mixed["Shard"])["input"] == [
        "s3://corpus/raw/code/",
        "s3://corpus/raw/web/",
    ]


def test_a_recipe_with_shards_begins_at_the_training():
    """Nothing else of the definition changes but where the splits lie, by which looks count."""
    body = document(*SHARDS)
    steps = {one["Name"]: one["Arguments"] for one in body["Steps"]}
    assert [*steps] == ["Train", "Evaluate", "Gate", "Verdict"]
    uris = {
        one["ChannelName"]: one["DataSource"]["S3DataSource"]["S3Uri"]
        for one in steps["Train"]["InputDataConfig"]
    }
    packed = "s3://corpus/packed/{}".format
    assert uris == uris | {name: packed(name) for name in ("train", "validation")}
    given = {one["InputName"]: one["S3Input"] for one in steps["Evaluate"]["ProcessingInputs"]}
    assert (given["train"]["S3Uri"], given["test"]["S3Uri"]) == (packed("train"), packed("test"))
    assert "summary" not in given
    names = {one["Name"] for one in body["Parameters"]}
    assert not names & {"InputUri", "ShardInstanceCount"}
    assert "Steps.Shard" not in json.dumps(body)
    for found, place in (body, {"channels": {"test": packed("test")}}), (document(), {}):
        [evaluate] = [one for one in iter_steps(found["Steps"]) if one.name == "Evaluate"]
        assert find_test_channels(evaluate) == place


def test_a_range_of_the_loops_own_field_is_taken():
    recipe = load_recipe(
        LAPTOP, [f"tune={{ranges: {{{RATE}, optimizer: [adamw, lamb]}}, trainings: 4}}"]
    )
    assert recipe.tune is not None and [*recipe.tune.ranges] == ["learning_rate", "optimizer"]


def test_a_scripts_first_metric_is_the_primary_one_and_its_baseline_can_be_demanded():
    found = load_recipe(SCRIPT, ["evaluate.baselines=[chance]", "gate.below_baseline=chance"])
    spec = found.workload_spec
    assert spec.primary_metric == "accuracy" and spec.baselines == ("chance",)
    assert dict(spec.metrics) == {"accuracy": "higher", "log_loss": "lower"}


def test_pip_is_told_of_one_source():
    assert Packages().build_pip_environment("/w") == {}
    index = {"PIP_INDEX_URL": "https://h/simple"}
    assert Packages(index="https://h/simple").build_pip_environment("/w") == index
    assert Packages(codeartifact=ARN).build_pip_environment("/w") == {"CA_REPOSITORY_ARN": ARN}
    house = Packages(wheelhouse=True).build_pip_environment("/w")
    assert house == {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/w"}


PACKAGE = "arn:aws:sagemaker:us-east-1:123456789012:model-package/trainyard-laptop/7"
ROLE = "arn:aws:iam::123456789012:role/jobs"


def release(*sets: str) -> Release:
    recipe = load_recipe(LAPTOP, ["deploy.endpoint=live", *sets])
    return Release(recipe, PACKAGE, ROLE, "s3://b/captured")


def test_the_requests_say_what_the_recipe_says_in_the_services_shape() -> None:
    new = release(
        "deploy.capture_share=0.2",
        "deploy.max_p95_ms=250",
        "deploy.compare={quality: bits_per_byte}",
        "deploy.share=0.25",
        "deploy.instance_count=4",
        "aws.kms_key=alias/own",
    )
    assert build_model_request(new)["PrimaryContainer"] == {"ModelPackageName": PACKAGE}
    config = build_config_request(new)
    [variant] = config["ProductionVariants"]
    assert (variant["VariantName"], variant["InitialInstanceCount"]) == ("version-7", 4)
    assert config["DataCaptureConfig"]["InitialSamplingPercentage"] == 20
    assert config["KmsKeyId"] == config["DataCaptureConfig"]["KmsKeyId"] == "alias/own"
    plain = build_config_request(release("deploy.capture_share=0.2"))
    assert "KmsKeyId" not in plain and "KmsKeyId" not in plain["DataCaptureConfig"]
    found = {alarm["MetricName"]: alarm for alarm in build_alarm_requests(new)}
    assert found["ModelLatency"]["Threshold"] == 250_000  # microseconds
    assert found["ModelLatency"]["EvaluationPeriods"] == 2, "one slow request sets it off"
    assert found["Invocation5XXErrors"]["EvaluationPeriods"] == 1
    assert found["Invocation5XXErrors"]["Threshold"] == 0.05
    names = [alarm["AlarmName"] for alarm in found.values()]
    assert names == [f"live-trainyard-laptop-7-{kind}" for kind in ("errors", "latency", "worse")]
    asked = build_deployment_config(new.deploy, names)
    routing = asked["BlueGreenUpdatePolicy"]["TrafficRoutingConfiguration"]
    assert routing["CanarySize"] == {"Type": "CAPACITY_PERCENT", "Value": 25}
    assert routing["WaitIntervalInSeconds"] == 600
    assert len(asked["AutoRollbackConfiguration"]["Alarms"]) == 3
    service = boto3.client("sagemaker", region_name="us-east-1").meta.service_model
    update = {"EndpointName": "live", "EndpointConfigName": new.name, "DeploymentConfig": asked}
    for operation, request in (
        ("CreateModel", build_model_request(new)),
        ("CreateEndpointConfig", config),
        ("UpdateEndpoint", update),
    ):
        shape = service.operation_model(operation).input_shape
        report = ParamValidator().validate(request, shape)
        assert not report.has_errors(), report.generate_report()
    with pytest.raises(RecipeError, match="deploy: is missing"):
        _ = Release(load_recipe(LAPTOP), PACKAGE, ROLE, "s3://b/c").deploy
