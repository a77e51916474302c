"""Compare a new model with the serving one, by errors and captured answers, while both serve."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from pipelines.registry.package_evidence import split
from pipelines.serving.endpoint_requests import NAMESPACE, WORSE, Release
from pipelines.serving.sequential_test import ErrorTest, MeanTest
from trainyard.aws_clients import service_errors


@dataclass
class Comparison:
    """The comparison of both models during a deployment; it rolls back by its alarm."""

    new: Release
    old_config: str
    sagemaker: Any
    cloudwatch: Any
    s3: Any
    _since: datetime = field(default_factory=lambda: datetime.now(UTC))
    _counts: dict[str, tuple[int, int]] = field(default_factory=dict)
    _read: set[str] = field(default_factory=set)
    _told: bool = False

    def __post_init__(self) -> None:
        compare = self.new.deploy.compare
        self._error = compare.error if compare else 0.05
        both = bool(compare and compare.quality)
        share = self._error / 2 if both else self._error
        self.errors = ErrorTest(share)
        self.means = MeanTest(share, compare.better) if compare and both else None
        with service_errors(f"looking at endpoint configuration {self.old_config}"):
            found = self.sagemaker.describe_endpoint_config(EndpointConfigName=self.old_config)
        self._variants = {
            self.new.name: self.new.variant,
            self.old_config: found["ProductionVariants"][0]["VariantName"],
        }

    def look(self, say: Callable[[str], None]) -> None:
        """Compare what was answered since the last look; let the alarm go off if it is worse."""
        if self.new.deploy.compare is None or self._told:
            return
        counts = {config: self._counted(config) for config in self._variants}
        new, old = (self._fresh(config, counts[config]) for config in (self.new.name,
                                                                      self.old_config))  # fmt: skip
        self._counts = counts
        self.errors.add(new, old)
        if self.means:
            self.means.add(self._values(self.new.name), self._values(self.old_config))
        worse = [
            *(["it fails more often"] if self.errors.worse else []),
            *(["its answers are worse"] if self.means and self.means.worse else []),
        ]
        if worse:
            self._told = True
            say(f"{self.new.package}: {' and '.join(worse)} than what serves; rolling back")
            self._alarm()

    def _alarm(self) -> None:
        point = {
            "MetricName": WORSE,
            "Dimensions": [{"Name": "EndpointConfigName", "Value": self.new.name}],
            "Value": 1.0,
            "StorageResolution": 1,
        }
        with service_errors(f"rolling back {self.new.package}"):
            self.cloudwatch.put_metric_data(Namespace=NAMESPACE, MetricData=[point])

    def _fresh(self, config: str, now: tuple[int, int]) -> tuple[int, int]:
        before = self._counts.get(config, (0, 0))
        return now[0] - before[0], now[1] - before[1]

    def _counted(self, config: str) -> tuple[int, int]:
        """Return requests and server errors of a configuration since the watch began."""
        dimensions = {
            "EndpointName": self.new.deploy.endpoint,
            "VariantName": self._variants[config],
            "EndpointConfigName": config,
        }
        asked = {
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
                    for point in self.cloudwatch.get_metric_statistics(MetricName=name, **asked)[
                        "Datapoints"
                    ]
                )
                for name in ("Invocations", "Invocation5XXErrors")
            ]
        return int(sums[0]), int(sums[1])

    def _values(self, config: str) -> Iterator[float]:
        """Iterate over the quality of the answers captured since the last look."""
        bucket, prefix = split(
            f"{self.new.capture}/{self.new.deploy.endpoint}/{self._variants[config]}/"
        )
        with service_errors(f"reading what {self.new.deploy.endpoint} captured"):
            pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
            fresh = [
                item["Key"]
                for page in pages
                for item in page.get("Contents", ())
                if item["Key"] not in self._read and item["LastModified"] >= self._since
            ]
            for key in fresh:
                self._read.add(key)
                body = self.s3.get_object(Bucket=bucket, Key=key)["Body"].read()
                yield from self._qualities(body.decode())

    def _qualities(self, lines: str) -> Iterator[float]:
        compare = self.new.deploy.compare
        path = (compare.quality or "").split(".") if compare else []
        for line in lines.splitlines():
            output = json.loads(line)["captureData"].get("endpointOutput", {})
            if output.get("encoding") != "JSON":
                continue
            value = json.loads(output["data"])
            for member in path:
                value = value.get(member) if isinstance(value, dict) else None
            if isinstance(value, int | float):
                yield float(value)
