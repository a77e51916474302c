"""Compare a new model with the serving one, by errors and captured answers, while both serve."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from pipelines.registry.package_evidence import split
from pipelines.serving.captured_answers import answer, number_at, without_number
from pipelines.serving.endpoint_requests import NAMESPACE, WORSE, Release
from pipelines.serving.sequential_test import FEWEST, ErrorTest, MeanTest
from trainyard.aws_clients import service_errors
from trainyard.common.errors import RecipeError

LATEST = 10
"""Files of captured answers that show which numbers the serving model answers with."""


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
    _answers: dict[str, list[Any]] = field(default_factory=dict)
    """Configuration → its first captured answers, at most ``FEWEST``."""
    _has_alarmed: bool = False

    def __post_init__(self) -> None:
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

    def refuse_unknown(self) -> None:
        """Refuse a quality that the serving model's captured answers have no number for.

        Raises:
            RecipeError: there are answers, and none has it.
        """
        compare = self.new.deploy.compare
        if compare is None or compare.quality is None:
            return
        with service_errors(f"reading what {self.new.deploy.endpoint} captured"):
            files = sorted(self._files(self.old_config), key=lambda item: item["LastModified"])
            lines = [line for item in files[-LATEST:] for line in self._lines(item["Key"])]
        answers = [reply for line in lines if (reply := answer(line)) is not None]
        if wrong := without_number(compare.quality, answers):
            raise RecipeError(
                f"deploy.compare.quality: {wrong}; nothing was deployed. Leave quality out to "
                "compare errors alone"
            )

    def check_answers(self, report: Callable[[str], None]) -> None:
        """Compare what was answered since the last look; let the alarm go off if it is worse."""
        if self.new.deploy.compare is None or self._has_alarmed:
            return
        counts = {config: self._count_requests(config) for config in self._variants}
        new, old = (self._fresh(config, counts[config]) for config in (self.new.name,
                                                                      self.old_config))  # fmt: skip
        self._counts = counts
        self.errors.add(new, old)
        if self.means:
            self.means.add(self._values(self.new.name), self._values(self.old_config))
        worse = [
            *(["it fails more often"] if self.errors.worse else []),
            *(["its answers are worse"] if self.means and self.means.worse else []),
            *(["its answers lack what is compared"] if self._lacks_quality() else []),
        ]
        if worse:
            self._has_alarmed = True
            report(f"{self.new.package}: {' and '.join(worse)} than what serves; rolling back")
            self._alarm()

    def result(self) -> str:
        """Return how many answers were compared, or why none was; empty where none should be."""
        if self.means is None:
            return ""
        new, old = self.means.counts
        summary = f"quality compared of {new:,} answers of the new and {old:,} of the serving model"
        return summary if new and old else f"{summary}: that is, not compared; capture more of them"

    def _lacks_quality(self) -> bool:
        compare, answers = self.new.deploy.compare, self._answers.get(self.new.name, [])
        path = compare.quality if compare else None
        return bool(path and len(answers) >= FEWEST and without_number(path, answers))

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

    def _count_requests(self, config: str) -> tuple[int, int]:
        """Return requests and server errors of a configuration since the watch began."""
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

    def _values(self, config: str) -> Iterator[float]:
        """Iterate over the quality of the answers captured since the last look."""
        compare = self.new.deploy.compare
        first = self._answers.setdefault(config, [])
        with service_errors(f"reading what {self.new.deploy.endpoint} captured"):
            fresh = [
                item["Key"]
                for item in self._files(config)
                if item["Key"] not in self._read and item["LastModified"] >= self._since
            ]
            for key in fresh:
                self._read.add(key)
                for line in self._lines(key):
                    reply = answer(line)
                    if reply is not None and len(first) < FEWEST:
                        first.append(reply)
                    value = number_at(reply, compare.quality or "") if compare else None
                    if value is not None:
                        yield value

    def _files(self, config: str) -> Iterator[Any]:
        """Iterate over the files captured of a configuration."""
        root = f"{self.new.capture}/{self.new.deploy.endpoint}/{self._variants[config]}/"
        bucket, prefix = split(root)
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        yield from (item for page in pages for item in page.get("Contents", ()))

    def _lines(self, key: str) -> Iterator[bytes]:
        bucket, _ = split(self.new.capture)
        yield from self.s3.get_object(Bucket=bucket, Key=key)["Body"].read().splitlines()
