"""Values of a training job's metric, as CloudWatch and DescribeTrainingJob keep them."""

from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from trainyard.aws_clients import service_errors

NAMESPACE = "/aws/sagemaker/TrainingJobs"


class Sample(NamedTuple):
    """A value of a metric."""

    timestamp: float
    """Milliseconds since the epoch."""
    step: float | None
    """Number of steps, epochs or rounds, from its line; None if the line has none."""
    value: float
    """Value; may be NaN or infinite."""


def final(job: Mapping[str, Any]) -> dict[str, Sample]:
    """Return name → last value, from DescribeTrainingJob's FinalMetricDataList."""
    entries = job.get("FinalMetricDataList") or ()
    return {entry["MetricName"]: _final(entry) for entry in entries if "MetricName" in entry}


def _final(entry: Mapping[str, Any]) -> Sample:
    when = entry.get("Timestamp")
    timestamp = when.timestamp() * 1000 if isinstance(when, datetime) else 0.0
    return Sample(timestamp, None, float(entry.get("Value", "nan")))


def of_cloudwatch(
    cloudwatch: Any, job: str, names: list[str], description: Mapping[str, Any]
) -> dict[str, list[Sample]]:
    """Return GetMetricData's values by name; ``names``: at most 500, the limit of a request.

    Raises:
        ServiceError: CloudWatch refuses.
    """
    start = description.get("TrainingStartTime") or description.get("CreationTime")
    if start is None or not names:
        return {}
    end = description.get("TrainingEndTime") or datetime.now(UTC)
    period = _period(start, end)
    queries = [
        {
            "Id": f"m{i}",
            "MetricStat": {
                "Metric": {
                    "Namespace": NAMESPACE,
                    "MetricName": name,
                    "Dimensions": [{"Name": "TrainingJobName", "Value": job}],
                },
                "Period": period,
                "Stat": "Average",
            },
        }
        for i, name in enumerate(names)
    ]
    series: dict[str, list[Sample]] = defaultdict(list)
    with service_errors(f"reading CloudWatch's metrics of training job {job}"):
        pages = cloudwatch.get_paginator("get_metric_data").paginate(
            MetricDataQueries=queries,
            StartTime=start - timedelta(seconds=period),
            EndTime=end + timedelta(seconds=period),
            ScanBy="TimestampAscending",
        )
        for page in pages:
            for result in page.get("MetricDataResults", ()):
                values = zip(result.get("Timestamps", ()), result.get("Values", ()), strict=False)
                query_id = result.get("Id", "")[1:]
                name = names[int(query_id)] if query_id.isdigit() else result.get("Label", "")
                series[name] += [Sample(t.timestamp() * 1000, None, v) for t, v in values]
    return dict(series) if any(series.values()) else {}


def _period(start: datetime, end: datetime) -> int:
    """Return the seconds per value: at most 1,000 values, at a period that CloudWatch still keeps
    (https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/cloudwatch_concepts.html:
    a minute for 15 days, 5 minutes for 63 days, an hour for 455).
    """
    age = (datetime.now(UTC) - start).days
    least = 60 if age < 15 else 300 if age < 63 else 3_600
    return max(1, round((end - start).total_seconds() / 1_000 / least)) * least
