"""Bring a package into service at the recipe's endpoint, watch the shift, and go back."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from pipelines.serving.comparison import Comparison
from pipelines.serving.endpoint_requests import (
    Release,
    alarms,
    configuration,
    deployment,
    model,
)
from trainyard.aws_clients import client, service_errors
from trainyard.common.errors import GateError, ServiceError

BEFORE = "trainyard:before"
"""Tag of the endpoint: the configuration that served before, which a roll-back returns to."""
POLL_SECONDS = 5.0  # seconds between two looks at a deployment
BUSY = ("Creating", "Updating", "RollingBack", "SystemUpdating")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a deployment ended."""

    config: str
    """Name of the configuration that serves."""
    is_serving: bool
    """Whether it is the one that was asked for."""
    reason: str = ""
    """What SageMaker says of a roll-back."""


def describe_endpoint(sagemaker: Any, endpoint: str) -> dict[str, Any] | None:
    """Return DescribeEndpoint's answer; None where there is no such endpoint."""
    with service_errors(f"looking at endpoint {endpoint}"):
        try:
            return sagemaker.describe_endpoint(EndpointName=endpoint)
        except ClientError as error:
            if "Could not find" in str(error) or "does not exist" in str(error):
                return None
            raise


def serving(sagemaker: Any, endpoint: str) -> str | None:
    """Return the ARN of the model package that the endpoint serves; None where there is none."""
    description = describe_endpoint(sagemaker, endpoint)
    return None if description is None else package_of(sagemaker, description["EndpointConfigName"])


def package_of(sagemaker: Any, config: str) -> str | None:
    """Return the ARN of the model package that an endpoint's configuration serves; None for a model
    of another kind.
    """
    with service_errors(f"looking at endpoint configuration {config}"):
        variants = sagemaker.describe_endpoint_config(EndpointConfigName=config)
        name = variants["ProductionVariants"][0]["ModelName"]
        container = sagemaker.describe_model(ModelName=name).get("PrimaryContainer", {})
    package: str | None = container.get("ModelPackageName")
    return package


def release(new: Release, report: Callable[[str], None]) -> Outcome:
    """Create or update the endpoint, and return when the new model serves, or is rolled back.

    Raises:
        RecipeError: the serving model's answers have no such quality.
        ServiceError: AWS refused, or the endpoint is busy.
    """
    region = new.package.split(":")[3]
    sagemaker, cloudwatch = client("sagemaker", region), client("cloudwatch", region)
    name = new.deploy.endpoint
    before = describe_endpoint(sagemaker, name)
    if before and before["EndpointStatus"] != "InService":
        raise ServiceError(f"endpoint {name}: is {before['EndpointStatus']}; expected InService")
    old = before["EndpointConfigName"] if before else None
    watch = Comparison(new, old, sagemaker, cloudwatch, client("s3", region)) if old else None
    if watch:
        watch.refuse_unknown()
    with service_errors(f"deploying {new.package}"):
        _once(lambda: sagemaker.create_model(**model(new)))
        _once(lambda: sagemaker.create_endpoint_config(**configuration(new)))
        names = []
        for alarm in alarms(new):
            cloudwatch.put_metric_alarm(**alarm)
            names.append(alarm["AlarmName"])
        if before is None:
            tags = {"Tags": new.tags} if new.tags else {}
            sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=new.name, **tags)
        else:
            sagemaker.update_endpoint(
                EndpointName=name,
                EndpointConfigName=new.name,
                DeploymentConfig=deployment(new.deploy, names),
            )
    outcome = _wait_until_settled(sagemaker, name, new.name, watch, report)
    if watch and (comparison_text := watch.result()):
        report(f"{name}: {comparison_text}")
    if outcome.is_serving and old:
        _remember(sagemaker, name, old)
    return outcome


def go_back(endpoint: str, region: str | None, report: Callable[[str], None]) -> Outcome:
    """Return the endpoint to the configuration that served before the last deployment.

    Raises:
        GateError: none is known.
        ServiceError: AWS refused.
    """
    sagemaker = client("sagemaker", region)
    now = describe_endpoint(sagemaker, endpoint)
    if now is None:
        raise GateError(f"endpoint {endpoint}: does not exist: nothing to roll back")
    with service_errors(f"rolling back endpoint {endpoint}"):
        tags = sagemaker.list_tags(ResourceArn=now["EndpointArn"])["Tags"]
        before = next((tag["Value"] for tag in tags if tag["Key"] == BEFORE), None)
        if before is None:
            raise GateError(f"endpoint {endpoint}: has served one model only: nothing to return to")
        sagemaker.update_endpoint(EndpointName=endpoint, EndpointConfigName=before)
    outcome = _wait_until_settled(sagemaker, endpoint, before, None, report)
    if outcome.is_serving:
        _remember(sagemaker, endpoint, now["EndpointConfigName"])
    return outcome


def _remember(sagemaker: Any, endpoint: str, config: str) -> None:
    with service_errors(f"tagging endpoint {endpoint}"):
        arn = sagemaker.describe_endpoint(EndpointName=endpoint)["EndpointArn"]
        sagemaker.add_tags(ResourceArn=arn, Tags=[{"Key": BEFORE, "Value": config}])


def _once(create: Callable[[], Any]) -> None:
    """Create what may be there from an earlier attempt: a package is named once and for all."""
    try:
        create()
    except ClientError as error:
        if "already exist" not in str(error):
            raise


def _wait_until_settled(
    sagemaker: Any,
    endpoint: str,
    target_config: str,
    watch: Comparison | None,
    report: Callable[[str], None],
) -> Outcome:
    """Wait until the endpoint is settled; meanwhile compare the models."""
    status = ""
    while True:
        description = describe_endpoint(sagemaker, endpoint)
        if description is None:
            raise ServiceError(f"endpoint {endpoint}: was deleted while it was deployed")
        if description["EndpointStatus"] != status:
            status = description["EndpointStatus"]
            report(f"{endpoint}: {status}")
        if status not in BUSY:
            config = description["EndpointConfigName"]
            is_serving = status == "InService" and config == target_config
            return Outcome(config, is_serving, description.get("FailureReason", ""))
        if watch and status == "Updating":
            watch.check_answers(report)
        time.sleep(POLL_SECONDS)
