"""The AWS requests for an endpoint: model, configuration, alarms and shift of the traffic."""

import json
import math
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.recipe.config import Recipe
from pipelines.recipe.sections import Deploy
from trainyard.common.errors import RecipeError, suggest_nearest

PERIOD = 60
"""Seconds of an alarm's period: SageMaker's metrics of endpoints have one value per minute."""
MINUTES = 2
"""Minutes in a row in which the latency has to be too high. With few requests, a minute's p95 is
that of its slowest request, and a process's first request is slow with any model.
"""
NAMESPACE, WORSE = "Trainyard", "WorseThanServing"
"""Namespace and name of the CloudWatch metric by which a comparison rolls a deployment back."""
COMPARISON_SECONDS = 10
"""Seconds of the period of the alarm on this metric."""
CAPTURE_FOLDER = "captured"
"""Folder of the captured requests, below the pipeline's prefix."""
LONGEST_HOURS = 8  # longest deployment: MaximumExecutionTimeoutInSeconds is at most 28,800


@dataclass(frozen=True, slots=True)
class Release:
    """One model package that is to serve at the recipe's endpoint."""

    recipe: Recipe
    package: str
    """ARN of the model package."""
    role: str
    """ARN of the role that the model's containers have."""
    capture: str
    """S3 URI below which requests are captured."""

    @property
    def deploy(self) -> Deploy:
        """Return the recipe's section ``deploy``; raise RecipeError if there is none."""
        if self.recipe.deploy is None:
            raise RecipeError(
                "deploy: is missing from the recipe; set deploy: {endpoint: NAME} to serve its "
                "model"
            )
        return self.recipe.deploy

    @property
    def name(self) -> str:
        """Return the name of the model, which is also that of the endpoint's configuration."""
        group, version = self.package.rpartition(":model-package/")[2].split("/")
        return f"{build_name_prefix(self.deploy.endpoint, group)}{version}"

    @property
    def variant(self) -> str:
        """Return the variant's name, by which captured requests and metrics are told apart."""
        return f"version-{self.package.rpartition('/')[2]}"

    @property
    def tags(self) -> list[dict[str, str]]:
        return [{"Key": k, "Value": v} for k, v in sorted(self.recipe.aws.tags.items())]


def build_name_prefix(endpoint: str, group: str) -> str:
    """Return the prefix of the names of models, configurations and alarms that deployments of a
    group's packages to an endpoint create. The package's version follows it.
    """
    return f"{endpoint}-{group[:25].rstrip('-')}-"


def build_model_request(release: Release) -> dict[str, Any]:
    """Return CreateModel's request."""
    aws = release.recipe.aws
    request: dict[str, Any] = {
        "ModelName": release.name,
        "ExecutionRoleArn": release.role,
        "PrimaryContainer": {"ModelPackageName": release.package},
        "EnableNetworkIsolation": aws.network_isolation,
    }
    if aws.vpc:
        request["VpcConfig"] = {
            "Subnets": list(aws.vpc.subnets),
            "SecurityGroupIds": list(aws.vpc.security_groups),
        }
    return request | ({"Tags": release.tags} if release.tags else {})


def build_config_request(release: Release) -> dict[str, Any]:
    """Return CreateEndpointConfig's request."""
    deploy, key = release.deploy, release.recipe.aws.kms_key
    variant = {
        "VariantName": release.variant,
        "ModelName": release.name,
        "InstanceType": deploy.instance_type,
        "InitialInstanceCount": deploy.instance_count,
        "InitialVariantWeight": 1.0,
    }
    request: dict[str, Any] = {"EndpointConfigName": release.name, "ProductionVariants": [variant]}
    if deploy.capture_share:
        request["DataCaptureConfig"] = {
            "EnableCapture": True,
            "InitialSamplingPercentage": round(100 * deploy.capture_share),
            "DestinationS3Uri": release.capture,
            "CaptureOptions": [{"CaptureMode": "Input"}, {"CaptureMode": "Output"}],
            "CaptureContentTypeHeader": {
                "JsonContentTypes": ["application/json"],
                "CsvContentTypes": ["text/csv"],
            },
            **({"KmsKeyId": key} if key else {}),
        }
    if key:
        request["KmsKeyId"] = key
    return request | ({"Tags": release.tags} if release.tags else {})


def build_alarm_requests(release: Release) -> Iterator[dict[str, Any]]:
    """Yield the PutMetricAlarm requests of this release: for errors, latency and the comparison."""
    deploy = release.deploy
    dimensions = {
        "EndpointName": deploy.endpoint,
        "VariantName": release.variant,
        "EndpointConfigName": release.name,
    }
    of_minute = {
        "Namespace": "AWS/SageMaker",
        "Period": PERIOD,
        "Dimensions": _format_dimensions(dimensions),
    }
    if deploy.max_error_share is not None:
        yield (
            _build_alarm_fields(release, "errors", deploy.max_error_share)
            | of_minute
            | {"MetricName": "Invocation5XXErrors", "Statistic": "Average"}
        )
    if deploy.max_p95_ms is not None:
        yield (
            _build_alarm_fields(release, "latency", deploy.max_p95_ms * 1000)
            | of_minute
            | {
                "MetricName": "ModelLatency",  # in microseconds
                "ExtendedStatistic": "p95",
                "EvaluationPeriods": MINUTES,
            }
        )
    if deploy.compare:
        yield _build_alarm_fields(release, "worse", 0.5) | {
            "Namespace": NAMESPACE,
            "MetricName": WORSE,
            "Dimensions": _format_dimensions({"EndpointConfigName": release.name}),
            "Statistic": "Maximum",
            "Period": COMPARISON_SECONDS,
        }


def _build_alarm_fields(release: Release, kind: str, threshold: float) -> dict[str, Any]:
    """Return the fields that all alarms of a release have."""
    return {
        "AlarmName": f"{release.name}-{kind}",
        "AlarmDescription": f"{kind} of {release.package}; it rolls a deployment back",
        "EvaluationPeriods": 1,
        "Threshold": threshold,
        "ComparisonOperator": "GreaterThanThreshold",
        "TreatMissingData": "notBreaching",
    }


def _format_dimensions(dimensions: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Name": name, "Value": value} for name, value in dimensions.items()]


def build_deployment_config(deploy: Deploy, names: list[str]) -> dict[str, Any]:
    """Return the DeploymentConfig of an update; the alarms in ``names`` roll it back."""
    wait = round(deploy.bake_minutes * 60)
    percent = {"Type": "CAPACITY_PERCENT", "Value": round(100 * deploy.share)}
    routing: dict[str, Any] = {"Type": deploy.shift.upper(), "WaitIntervalInSeconds": wait}
    if deploy.shift == "canary":
        routing["CanarySize"] = percent
    if deploy.shift == "linear":
        routing["LinearStepSize"] = percent
    request: dict[str, Any] = {
        "BlueGreenUpdatePolicy": {
            "TrafficRoutingConfiguration": routing,
            "TerminationWaitInSeconds": 0,
            "MaximumExecutionTimeoutInSeconds": LONGEST_HOURS * 3600,
        }
    }
    if names:
        alarms = [{"AlarmName": name} for name in names]
        request["AutoRollbackConfiguration"] = {"Alarms": alarms}
    return request


# Read what an endpoint captured: bodies of requests and responses, and numbers in responses.

UNREADABLE = (AttributeError, LookupError, TypeError, ValueError, RecursionError)
"""Exceptions that are raised when JSON of another form is read."""


def parse_captured_body(capture: Mapping[str, str]) -> Any:
    """Return a captured JSON body; raise one of ``UNREADABLE`` if it is not one."""
    data = b64decode(capture["data"]) if capture["encoding"] == "BASE64" else capture["data"]
    return json.loads(data)


def read_response_body(line: str | bytes) -> Any:
    """Return the response in a captured line; None if it has none, or cannot be read."""
    try:
        return parse_captured_body(json.loads(line)["captureData"]["endpointOutput"])
    except UNREADABLE:
        return None


def find_value(answer: Any, path: str) -> Any:
    """Return a response's value at the dotted path ``path``; None if it is missing."""
    for member in path.split("."):
        answer = answer.get(member) if isinstance(answer, dict) else None
    return answer


def find_number(answer: Any, path: str) -> float | None:
    """Return the number at ``path``; None if it is missing, not a number, NaN or infinite."""
    value = find_value(answer, path)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # a whole number beyond float64
        return None


def iter_number_paths(answer: Any) -> Iterator[str]:
    """Yield the paths of all numbers in a response."""
    for name, value in answer.items() if isinstance(answer, dict) else ():
        yield from (f"{name}.{rest}" for rest in iter_number_paths(value))
        if find_number(answer, name) is not None:
            yield name


def explain_missing_number(path: str, answers: Sequence[Any]) -> str | None:
    """Return a message saying that no response has a number at ``path``, with the nearest path that
    has one; return None if some response has it, or there are no responses.
    """
    if not answers or any(find_number(reply, path) is not None for reply in answers):
        return None
    number_names = [*dict.fromkeys(name for reply in answers for name in iter_number_paths(reply))]
    hint = suggest_nearest(path, number_names) if number_names else "there are no numbers in them"
    return f"none of {len(answers):,} captured answers has a number {path!r}; {hint}"
