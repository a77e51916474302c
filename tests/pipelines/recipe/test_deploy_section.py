"""A wrong endpoint is refused when the recipe is read; a right one becomes SageMaker's requests."""

import pytest

from pipelines.endpoint.endpoint_requests import Release, alarms, configuration, deployment, model
from pipelines.recipe.read_recipe import load
from tests.conftest import CHECKOUT
from trainyard.common.errors import RecipeError

LAPTOP = CHECKOUT / "recipes/laptop.yaml"
PACKAGE = "arn:aws:sagemaker:us-east-1:123456789012:model-package/trainyard-laptop/7"
ROLE = "arn:aws:iam::123456789012:role/jobs"


def release(*sets: str) -> Release:
    recipe = load(LAPTOP, ["deploy.endpoint=live", *sets])
    return Release(recipe, PACKAGE, ROLE, "s3://b/captured")


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        (["deploy.instance_count=1"], "share: 0.5 of 1 instances is 1, more than half"),
        (["deploy.share=0.6"], "deploy.share"),
        (["deploy.compare={quality: bits_per_byte}"], "set capture_share"),
        (["deploy.compare={}", "deploy.shift=all_at_once"], "needs both models to answer"),
        (["deploy.endpoint=a_b"], "deploy.endpoint"),
        (["deploy.max_p95_ms=250", "deploy.bake_minutes=2"], "2 is too short for max_p95_ms"),
        (
            ["deploy.capture_share=1", "deploy.compare={quality: bit_per_byte}"],
            "deploy.compare.quality: 'bit_per_byte' is no number .* nearest valid name: bits_per_b",
        ),
        (["deploy.instance=x"], "instance_type"),
    ],
)
def test_a_wrong_endpoint_is_refused(sets: list[str], said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        release(*sets)


def test_the_requests_say_what_the_recipe_says() -> None:
    new = release(
        "deploy.capture_share=0.2",
        "deploy.max_p95_ms=250",
        "deploy.compare={quality: bits_per_byte}",
        "deploy.share=0.25",
        "deploy.instance_count=4",
        "aws.kms_key=alias/own",
    )
    assert model(new)["PrimaryContainer"] == {"ModelPackageName": PACKAGE}
    config = configuration(new)
    [variant] = config["ProductionVariants"]
    assert (variant["VariantName"], variant["InitialInstanceCount"]) == ("version-7", 4)
    assert config["DataCaptureConfig"]["InitialSamplingPercentage"] == 20
    assert config["KmsKeyId"] == config["DataCaptureConfig"]["KmsKeyId"] == "alias/own"
    found = {alarm["MetricName"]: alarm for alarm in alarms(new)}
    assert found["ModelLatency"]["Threshold"] == 250_000  # microseconds
    assert found["ModelLatency"]["EvaluationPeriods"] == 2, "one slow request sets it off"
    assert found["Invocation5XXErrors"]["EvaluationPeriods"] == 1
    assert found["Invocation5XXErrors"]["Threshold"] == 0.05
    names = [alarm["AlarmName"] for alarm in found.values()]
    assert names == [f"live-trainyard-laptop-7-{kind}" for kind in ("errors", "latency", "worse")]
    asked = deployment(new.deploy, names)
    routing = asked["BlueGreenUpdatePolicy"]["TrafficRoutingConfiguration"]
    assert routing["CanarySize"] == {"Type": "CAPACITY_PERCENT", "Value": 25}
    assert routing["WaitIntervalInSeconds"] == 600
    assert len(asked["AutoRollbackConfiguration"]["Alarms"]) == 3
    with pytest.raises(RecipeError, match="deploy: is missing"):
        _ = Release(load(LAPTOP), PACKAGE, ROLE, "s3://b/c").deploy


def test_each_request_is_one_of_the_service() -> None:
    """Checked against botocore's model, which AWS's clients use."""
    import boto3
    from botocore.validate import ParamValidator

    new = release("deploy.capture_share=0.2", "deploy.compare={quality: bits_per_byte}")
    service = boto3.client("sagemaker", region_name="us-east-1").meta.service_model
    update = {"EndpointName": "live", "EndpointConfigName": new.name}
    for operation, request in (
        ("CreateModel", model(new)),
        ("CreateEndpointConfig", configuration(new)),
        ("UpdateEndpoint", update | {"DeploymentConfig": deployment(new.deploy, ["a"])}),
    ):
        shape = service.operation_model(operation).input_shape
        report = ParamValidator().validate(request, shape)
        assert not report.has_errors(), report.generate_report()
