"""Bring a package into service at the recipe's endpoint, watch the traffic shift, and roll back."""

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from botocore.exceptions import ClientError

from pipelines.endpoint.endpoint_requests import (
    NAMESPACE,
    WORSE,
    Release,
    build_alarm_requests,
    build_config_request,
    build_deployment_config,
    build_model_request,
    explain_missing_number,
    find_number,
    read_response_body,
)
from pipelines.registry.package_evidence import split_s3_uri
from trainyard.aws_clients import create_client, service_errors
from trainyard.common.errors import GateError, RecipeError, ServiceError

# Compare a new model with the serving one while both serve, by errors and captured responses.

LATEST = 10
"""Number of files of captured responses in which a quality's path is looked up before a
deployment.
"""


@dataclass
class ModelComparison:
    """Compares both models during a deployment; if the new one is worse, its alarm rolls back."""

    new: Release
    old_config: str
    sagemaker: Any
    cloudwatch: Any
    s3: Any
    _since: datetime = field(default_factory=lambda: datetime.now(UTC))
    _counts: dict[str, tuple[int, int]] = field(default_factory=dict)
    _read: set[str] = field(default_factory=set)
    _answers: dict[str, list[Any]] = field(default_factory=dict)
    """First captured responses, at most ``FEWEST``, of each configuration, by name."""
    _has_alarmed: bool = False

    def __post_init__(self) -> None:
        """Prepare the tests; with a quality, each of the two gets half of the error."""
        compare = self.new.deploy.compare
        self._error = compare.error if compare else 0.05
        both = bool(compare and compare.quality)
        share = self._error / 2 if both else self._error
        self.errors = ErrorTest(share)
        self.means = MeanTest(share, compare.better) if compare and both else None
        with service_errors(f"looking at endpoint configuration {self.old_config}"):
            config_description = self.sagemaker.describe_endpoint_config(
                EndpointConfigName=self.old_config
            )
        self._variants = {
            self.new.name: self.new.variant,
            self.old_config: config_description["ProductionVariants"][0]["VariantName"],
        }

    def check_quality_is_captured(self) -> None:
        """Check that the serving model's captured responses have the number to compare.

        Raises:
            RecipeError: there are responses, but none has a number at ``deploy.compare.quality``.
        """
        compare = self.new.deploy.compare
        if compare is None or compare.quality is None:
            return
        with service_errors(f"reading the requests captured by {self.new.deploy.endpoint}"):
            files = sorted(
                self._iter_capture_files(self.old_config), key=lambda item: item["LastModified"]
            )
            lines = [
                line for item in files[-LATEST:] for line in self._iter_captured_lines(item["Key"])
            ]
        answers = [reply for line in lines if (reply := read_response_body(line)) is not None]
        if wrong := explain_missing_number(compare.quality, answers):
            raise RecipeError(
                f"deploy.compare.quality: {wrong}; nothing was deployed. Leave quality out to "
                "compare errors alone"
            )

    def check_answers(self, report: Callable[[str], None]) -> None:
        """Compare the responses since the last call; if the new model is worse, trigger the alarm.

        Does nothing if the recipe compares nothing, or if the alarm was triggered before.
        """
        if self.new.deploy.compare is None or self._has_alarmed:
            return
        counts = {config: self._count_requests(config) for config in self._variants}
        new, old = (
            self._count_new(config, counts[config]) for config in (self.new.name, self.old_config)
        )
        self._counts = counts
        self.errors.add(new, old)
        if self.means:
            self.means.add(
                self._iter_qualities(self.new.name), self._iter_qualities(self.old_config)
            )
        worse = [
            *(["it fails more often"] if self.errors.is_worse else []),
            *(["its answers are worse"] if self.means and self.means.is_worse else []),
            *(["its answers lack the compared number"] if self._lacks_quality() else []),
        ]
        if worse:
            self._has_alarmed = True
            report(
                f"{self.new.package}: compared with the serving model, {' and '.join(worse)}; "
                "rolling back"
            )
            point = {
                "MetricName": WORSE,
                "Dimensions": [{"Name": "EndpointConfigName", "Value": self.new.name}],
                "Value": 1.0,
                # High resolution: the alarm's period is COMPARISON_SECONDS, not a minute.
                "StorageResolution": 1,
            }
            with service_errors(f"rolling back {self.new.package}"):
                self.cloudwatch.put_metric_data(Namespace=NAMESPACE, MetricData=[point])

    def summarize_answers(self) -> str:
        """Return how many responses were compared, or why none were; "" if no quality is
        compared.
        """
        if self.means is None:
            return ""
        new, old = self.means.counts
        summary = f"quality compared of {new:,} answers of the new and {old:,} of the serving model"
        return summary if new and old else f"{summary}: too few to compare; capture more of them"

    def _lacks_quality(self) -> bool:
        """Return whether the new model's first ``FEWEST`` responses lack the compared number."""
        compare, answers = self.new.deploy.compare, self._answers.get(self.new.name, [])
        path = compare.quality if compare else None
        return bool(path and len(answers) >= FEWEST and explain_missing_number(path, answers))

    def _count_new(self, config: str, now: tuple[int, int]) -> tuple[int, int]:
        """Return (requests, errors) since the last call, given the present totals ``now``."""
        before = self._counts.get(config, (0, 0))
        return now[0] - before[0], now[1] - before[1]

    def _count_requests(self, config: str) -> tuple[int, int]:
        """Return (requests, server errors) of a configuration since the deployment started."""
        dimensions = {
            "EndpointName": self.new.deploy.endpoint,
            "VariantName": self._variants[config],
            "EndpointConfigName": config,
        }
        query = {
            "Namespace": "AWS/SageMaker",
            "Dimensions": [{"Name": k, "Value": v} for k, v in dimensions.items()],
            "StartTime": self._since,
            "EndTime": datetime.now(UTC) + timedelta(minutes=1),
            "Period": 60,
            "Statistics": ["Sum"],
        }
        with service_errors(f"reading the metrics of {self.new.deploy.endpoint}"):
            sums = [
                sum(
                    point["Sum"]
                    for point in self.cloudwatch.get_metric_statistics(MetricName=name, **query)[
                        "Datapoints"
                    ]
                )
                for name in ("Invocations", "Invocation5XXErrors")
            ]
        return int(sums[0]), int(sums[1])

    def _iter_qualities(self, config: str) -> Iterator[float]:
        """Yield the quality of each response that was captured since the last call.

        Also keep the configuration's first responses, for ``_lacks_quality``.
        """
        compare = self.new.deploy.compare
        first = self._answers.setdefault(config, [])
        with service_errors(f"reading the requests captured by {self.new.deploy.endpoint}"):
            new_keys = [
                item["Key"]
                for item in self._iter_capture_files(config)
                if item["Key"] not in self._read and item["LastModified"] >= self._since
            ]
            for key in new_keys:
                self._read.add(key)
                for line in self._iter_captured_lines(key):
                    reply = read_response_body(line)
                    if reply is not None and len(first) < FEWEST:
                        first.append(reply)
                    value = find_number(reply, compare.quality or "") if compare else None
                    if value is not None:
                        yield value

    def _iter_capture_files(self, config: str) -> Iterator[Any]:
        """Yield the S3 listing entries of the files captured for a configuration."""
        root = f"{self.new.capture}/{self.new.deploy.endpoint}/{self._variants[config]}/"
        bucket, prefix = split_s3_uri(root)
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        yield from (item for page in pages for item in page.get("Contents", ()))

    def _iter_captured_lines(self, key: str) -> Iterator[bytes]:
        bucket, _ = split_s3_uri(self.new.capture)
        yield from self.s3.get_object(Bucket=bucket, Key=key)["Body"].read().splitlines()


BEFORE = "trainyard:before"
"""Tag of the endpoint with the name of the previous configuration, to which a rollback returns."""
POLL_SECONDS = 5.0  # seconds between two checks of a deployment
BUSY = ("Creating", "Updating", "RollingBack", "SystemUpdating")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a deployment ended."""

    config: str
    """Name of the configuration that serves now."""
    is_serving: bool
    """Whether it is the configuration that was to be deployed."""
    reason: str = ""
    """SageMaker's reason for a rollback; empty if there was none."""


def describe_endpoint(sagemaker: Any, endpoint: str) -> dict[str, Any] | None:
    """Return DescribeEndpoint's response; None if there is no such endpoint."""
    with service_errors(f"looking at endpoint {endpoint}"):
        try:
            return sagemaker.describe_endpoint(EndpointName=endpoint)
        except ClientError as error:
            if "Could not find" in str(error) or "does not exist" in str(error):
                return None
            raise


def find_served_package(sagemaker: Any, endpoint: str) -> str | None:
    """Return the ARN of the model package that the endpoint serves.

    Return None if there is no such endpoint, or its model was not created from a package.
    """
    description = describe_endpoint(sagemaker, endpoint)
    return (
        None
        if description is None
        else find_config_package(sagemaker, description["EndpointConfigName"])
    )


def find_config_package(sagemaker: Any, config: str) -> str | None:
    """Return the ARN of the model package that an endpoint configuration serves; None if its model
    was not created from a package.
    """
    with service_errors(f"looking at endpoint configuration {config}"):
        variants = sagemaker.describe_endpoint_config(EndpointConfigName=config)
        name = variants["ProductionVariants"][0]["ModelName"]
        container = sagemaker.describe_model(ModelName=name).get("PrimaryContainer", {})
    package: str | None = container.get("ModelPackageName")
    return package


def deploy_release(new: Release, report: Callable[[str], None]) -> Outcome:
    """Create or update the endpoint; return when the new model serves, or was rolled back.

    Raises:
        RecipeError: no response of the serving model has the number to compare.
        ServiceError: AWS refused, or the endpoint is busy.
    """
    region = new.package.split(":")[3]
    sagemaker, cloudwatch = create_client("sagemaker", region), create_client("cloudwatch", region)
    name = new.deploy.endpoint
    before = describe_endpoint(sagemaker, name)
    if before and before["EndpointStatus"] != "InService":
        raise ServiceError(f"endpoint {name}: is {before['EndpointStatus']}; expected InService")
    old = before["EndpointConfigName"] if before else None
    watch = (
        ModelComparison(new, old, sagemaker, cloudwatch, create_client("s3", region))
        if old
        else None
    )
    # Before anything is created, so that a refusal leaves the account unchanged.
    if watch:
        watch.check_quality_is_captured()
    with service_errors(f"deploying {new.package}"):
        _create_if_absent(lambda: sagemaker.create_model(**build_model_request(new)))
        _create_if_absent(lambda: sagemaker.create_endpoint_config(**build_config_request(new)))
        # Before the update, because it refers to the alarms by name.
        names = []
        for alarm in build_alarm_requests(new):
            cloudwatch.put_metric_alarm(**alarm)
            names.append(alarm["AlarmName"])
        if before is None:
            tags = {"Tags": new.tags} if new.tags else {}
            sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=new.name, **tags)
        else:
            sagemaker.update_endpoint(
                EndpointName=name,
                EndpointConfigName=new.name,
                DeploymentConfig=build_deployment_config(new.deploy, names),
            )
    outcome = _wait_until_settled(sagemaker, name, new.name, watch, report)
    if watch and (comparison_text := watch.summarize_answers()):
        report(f"{name}: {comparison_text}")
    # Only after success: a deployment that was rolled back must not change which configuration a
    # later rollback returns to.
    if outcome.is_serving and old:
        _tag_previous_config(sagemaker, name, old)
    return outcome


def roll_back_endpoint(endpoint: str, region: str | None, report: Callable[[str], None]) -> Outcome:
    """Return the endpoint to the configuration that served before the last deployment.

    Raises:
        GateError: the endpoint does not exist, or has no previous configuration.
        ServiceError: AWS refused.
    """
    sagemaker = create_client("sagemaker", region)
    now = describe_endpoint(sagemaker, endpoint)
    if now is None:
        raise GateError(f"endpoint {endpoint}: does not exist: nothing to roll back")
    with service_errors(f"rolling back endpoint {endpoint}"):
        tags = sagemaker.list_tags(ResourceArn=now["EndpointArn"])["Tags"]
        before = next((tag["Value"] for tag in tags if tag["Key"] == BEFORE), None)
        if before is None:
            raise GateError(
                f"endpoint {endpoint}: has served only one model, so there is none to return to"
            )
        sagemaker.update_endpoint(EndpointName=endpoint, EndpointConfigName=before)
    outcome = _wait_until_settled(sagemaker, endpoint, before, None, report)
    if outcome.is_serving:
        _tag_previous_config(sagemaker, endpoint, now["EndpointConfigName"])
    return outcome


def _tag_previous_config(sagemaker: Any, endpoint: str, config: str) -> None:
    """Tag the endpoint with the configuration that a rollback returns to."""
    with service_errors(f"tagging endpoint {endpoint}"):
        arn = sagemaker.describe_endpoint(EndpointName=endpoint)["EndpointArn"]
        sagemaker.add_tags(ResourceArn=arn, Tags=[{"Key": BEFORE, "Value": config}])


def _create_if_absent(create: Callable[[], Any]) -> None:
    """Call ``create``; do nothing if the resource exists, from an earlier attempt with this
    package.

    A package's resources always have the same names, and never another content.
    """
    try:
        create()
    except ClientError as error:
        if "already exist" not in str(error):
            raise


def _wait_until_settled(
    sagemaker: Any,
    endpoint: str,
    target_config: str,
    watch: ModelComparison | None,
    report: Callable[[str], None],
) -> Outcome:
    """Wait until the endpoint has settled, and compare the models while it is updating."""
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


# Always-valid tests of a new model against the serving one, while both serve requests.
#
# The tests may be evaluated after every request: the probability that an equally good model is ever
# called worse is at most the stated error.

RATIOS = (1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0)
"""Ratios of the error rates, new to serving; the alternative hypothesis is a mixture of them."""
FEWEST = 30
"""Number of values of each model from which the first means are taken, and smallest number of
differences, because the bound is asymptotic.
"""


@dataclass(slots=True)
class ErrorTest:
    """Test whether the new model's requests fail more often, from which model made each error.

    Under the null hypothesis, an error is the new model's with at most the probability of its share
    of the requests. The likelihood ratio to a model that fails r times as often is a
    supermartingale, and so is the mean over RATIOS. By Ville's inequality, it exceeds 1 / error
    with at most the probability ``error`` (Robbins 1970, "Statistical methods related to the law of
    the iterated logarithm"; Howard et al. 2021, "Time-uniform, nonparametric, nonasymptotic
    confidence sequences").
    """

    error: float
    _logs: list[float] = field(default_factory=lambda: [0.0] * len(RATIOS))

    def add(self, new: tuple[int, int], old: tuple[int, int]) -> None:
        """Add a time window: (requests, errors) of the new model and of the serving model."""
        if not new[0] or not old[0]:
            return
        share, total = new[0] / (new[0] + old[0]), new[1] + old[1]
        for index, ratio in enumerate(RATIOS):
            worse_share = share * ratio / (share * ratio + 1 - share)
            of_new = new[1] * math.log(worse_share / share)
            self._logs[index] += of_new + (total - new[1]) * math.log(
                (1 - worse_share) / (1 - share)
            )

    @property
    def evidence(self) -> float:
        """Return the e-value; if it is at least 1 / ``error``, the new model is worse."""
        highest = max(self._logs)
        if highest > 700:  # math.exp would overflow
            return math.inf
        return sum(math.exp(value) for value in self._logs) / len(self._logs)

    @property
    def is_worse(self) -> bool:
        """Return whether the new model's requests fail more often."""
        return self.evidence >= 1 / self.error


@dataclass(slots=True)
class RunningStatistics:
    """Count, mean and sum of squared deviations of a stream of values (Welford 1962)."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def add(self, value: float) -> None:
        """Update count, mean and squares with one value."""
        self.count += 1
        deviation = value - self.mean
        self.mean += deviation / self.count
        self.squares += deviation * (value - self.mean)

    def compute_half_width(self, error: float, tightest: int) -> float:
        """Return the half-width of the one-sided asymptotic confidence sequence of the mean.

        Waudby-Smith, Arbour, Sinha, Kennedy, Ramdas: "Time-uniform central limit theory and
        asymptotic confidence sequences", Annals of Statistics 2024, the one-sided bound in its
        appendix. ``tightest``: number of values at which the sequence is about the narrowest.
        """
        base = -2 * math.log(2 * error)
        rho2 = (base + math.log(base + 1)) / tightest
        spread, n = self.squares / self.count, self.count
        log_term = math.log(1 + math.sqrt(n * rho2 + 1) / (2 * error))
        return math.sqrt(spread * 2 * (n * rho2 + 1) / (n * n * rho2) * log_term)


@dataclass(slots=True)
class MeanTest:
    """Test whether the mean of the new model's values is worse, by a confidence sequence of the
    difference.

    Each value gives an estimate of the difference. Its expectation is right, whatever the earlier
    means are; they only reduce its variance (augmented inverse probability weighting, as in the
    paper that ``compute_half_width`` cites).
    """

    error: float
    better: str
    """``lower`` or ``higher``."""
    tightest: int = 1000
    """Number of values, of both models together, at which the bound is about the narrowest."""
    new: RunningStatistics = field(default_factory=RunningStatistics)
    old: RunningStatistics = field(default_factory=RunningStatistics)
    difference: RunningStatistics = field(default_factory=RunningStatistics)
    _waiting: tuple[list[float], list[float]] = field(default_factory=lambda: ([], []))

    def add(self, new: Iterable[float], old: Iterable[float]) -> None:
        """Add the values since the last call; they are held back until both models have some."""
        sign = 1 if self.better == "lower" else -1
        new_values, old_values = self._waiting
        new_values += [sign * value for value in new]
        old_values += [sign * value for value in old]
        if not new_values or not old_values:
            return
        self._waiting = ([], [])
        share = len(new_values) / (len(new_values) + len(old_values))
        # Only means of earlier values: with a mean that includes the value itself, its estimate
        # would be biased.
        new_mean, old_mean = self.new.mean, self.old.mean
        if min(self.new.count, self.old.count) >= FEWEST:
            for value in new_values:
                self.difference.add(new_mean - old_mean + (value - new_mean) / share)
            for value in old_values:
                self.difference.add(new_mean - old_mean - (value - old_mean) / (1 - share))
        for value in new_values:
            self.new.add(value)
        for value in old_values:
            self.old.add(value)

    @property
    def counts(self) -> tuple[int, int]:
        """Return the number of values of the new and of the serving model."""
        new_values, old_values = self._waiting
        return self.new.count + len(new_values), self.old.count + len(old_values)

    @property
    def lower_bound(self) -> float:
        """Return the lower bound of how much worse the new model is; above 0, it is worse."""
        if self.difference.count < FEWEST:
            return -math.inf
        return self.difference.mean - self.difference.compute_half_width(self.error, self.tightest)

    @property
    def is_worse(self) -> bool:
        """Return whether the new model's mean is worse."""
        return self.lower_bound > 0
