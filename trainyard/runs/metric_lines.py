"""Read metrics and progress from lines of a training job's log, by its MetricDefinitions."""

import contextlib
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import regex

from trainyard.aws_clients import service_errors
from trainyard.metric_regex import Expression

LONGEST = 4_000
"""Number of characters of a line that are searched for metrics."""

STEPS = ("step", "global_step", "iteration", "iter", "round", "epoch")
"""Names of metrics that count a training job's progress, without the part before a colon."""

_COUNTER = re.compile(
    r"\b(?:global_)?(step|iteration|iter|round|epoch)s?\b['\"]?\s{0,2}[:=#\[(]?\s{0,2}(\d+(?:\.\d+)?)",
    re.IGNORECASE,
)
_XGBOOST = re.compile(r"^\s*\[(\d+)\](?:\s|#011)")


@dataclass(frozen=True, slots=True)
class Definition:
    """The definition of a metric, compiled."""

    name: str
    pattern: Expression
    hint: str
    """Text that is in every line that the pattern matches; empty if it is not known."""

    def extract_value(self, line: str) -> float | None:
        """Return the number that the pattern's first group matches in the line.

        Return None if the pattern does not match, or the group is not a number.
        """
        if self.hint not in line or (match := self.pattern.search(line)) is None:
            return None
        return parse_match(match)


def parse_match(match: "regex.Match[str]") -> float | None:
    """Return the match's first group as a number; None if it is not a number."""
    try:
        return float(match[1])
    except (TypeError, ValueError):
        return None


def compile_definitions(job: Mapping[str, Any]) -> list[Definition]:
    """Return the metric definitions of a training job, leaving out those that are not valid here.

    ``job`` is DescribeTrainingJob's response.
    """
    entries = []
    for entry in (job.get("AlgorithmSpecification") or {}).get("MetricDefinitions") or ():
        with contextlib.suppress(ValueError):  # AWS's dialect has features that ours does not have
            entries.append(compile_definition(entry))
    return entries


def compile_definition(entry: Mapping[str, Any]) -> Definition:
    """Compile an entry of MetricDefinitions.

    Raises:
        ValueError: its Regex is not valid, or has no group.
    """
    name = str(entry.get("Name", ""))
    try:
        pattern = Expression(str(entry.get("Regex", "")))
    except ValueError as error:
        raise ValueError(
            f"MetricDefinitions: the Regex of {name!r} is not valid: {error}"
        ) from None
    if not pattern.groups:
        raise ValueError(f"MetricDefinitions: the Regex of {name!r} needs one group (...)")
    return Definition(name, pattern, find_literal_prefix(pattern.text))


def explain_abandoned_metrics(metrics: Iterable[Definition]) -> list[str]:
    """Return a message for each metric whose expression took so long that it is no longer tried."""
    return [
        metric.pattern.explain_timeout(metric.name)
        for metric in metrics
        if metric.pattern.is_abandoned
    ]


def find_literal_prefix(regex: str) -> str:
    """Return the literal text with which a regular expression begins; empty if there is none.

    Anchors, word boundaries and white space before it are skipped. A line without this text cannot
    match, and looking for it takes a fraction of the time that the expression takes.
    """
    rest = re.sub(r"^(?:\(\?:\^\|\\s\)|\^|\.\*\??|\\b|\\s\*)+", "", regex)
    literal = re.match(r"[\w =:'\",/-]*", rest)
    prefix = literal[0] if literal else ""
    following = rest[len(prefix) : len(prefix) + 1]
    if following and following in "?*{":
        prefix = prefix[:-1]  # the quantifier makes the last character optional
    return "" if _has_choice(rest) else prefix


def _has_choice(regex: str) -> bool:
    """Return whether the expression has alternatives at its top level: a ``|`` outside all
    brackets.
    """
    depth, in_set = 0, False
    for part in re.findall(r"\\.|.", regex, re.DOTALL):
        if in_set:
            in_set = part != "]"
        elif part == "[":
            in_set = True
        elif part in "()":
            depth += 1 if part == "(" else -1
        elif part == "|" and depth == 0:
            return True
    return False


@dataclass(frozen=True, slots=True)
class LineMetrics:
    """The metrics in a line."""

    values: Mapping[str, float]
    """Mapping of a metric's name to its value."""
    counter: str
    """What ``step`` counts: ``step``, ``epoch``, …; empty if the line has no counter."""
    step: float | None


def parse_line_metrics(metrics: Iterable[Definition], message: str) -> LineMetrics | None:
    """Return the metrics in a log line; None if there are none."""
    # A progress bar writes its line again after each \r; only the last version counts.
    line = message[-LONGEST:].rstrip("\r\n").rpartition("\r")[2] if "\r" in message else message
    line = line[:LONGEST]
    values = {
        metric.name: value
        for metric in metrics
        if (value := metric.extract_value(line)) is not None
    }
    if not values:
        return None
    counter, step = _find_counter(values, line)
    return LineMetrics(values, counter, step)


def _find_counter(values: Mapping[str, float], line: str) -> tuple[str, float | None]:
    """Return the name and value of the line's progress counter; ``("", None)`` without one.

    It is a metric with a name in ``STEPS``, or text such as ``step 12``, or XGBoost's ``[12]``.
    """
    for name, value in values.items():
        if (short := name.rpartition(":")[2].lower()) in STEPS:
            return short, value
    if match := _COUNTER.search(line):
        return match[1].lower(), float(match[2])
    if match := _XGBOOST.match(line):
        return "round", float(match[1])
    return "", None


# Values of a training job's metric, as CloudWatch and DescribeTrainingJob keep them.

NAMESPACE = "/aws/sagemaker/TrainingJobs"


class Sample(NamedTuple):
    """The value of a metric at one point in time."""

    timestamp: float
    """Milliseconds since the epoch."""
    step: float | None
    """Number of steps, epochs or rounds in the log line; None if it is not known."""
    value: float
    """The value, which may be NaN or infinite."""


def read_final_metrics(job: Mapping[str, Any]) -> dict[str, Sample]:
    """Return a mapping of a metric's name to its last value.

    It is read from FinalMetricDataList in ``job``, DescribeTrainingJob's response.
    """
    samples = {}
    for entry in job.get("FinalMetricDataList") or ():
        if "MetricName" in entry:
            when = entry.get("Timestamp")
            timestamp = when.timestamp() * 1000 if isinstance(when, datetime) else 0.0
            value = float(entry.get("Value", "nan"))
            samples[entry["MetricName"]] = Sample(timestamp, None, value)
    return samples


def read_cloudwatch_metrics(
    cloudwatch: Any, job: str, names: list[str], description: Mapping[str, Any]
) -> dict[str, list[Sample]]:
    """Read a training job's metrics from CloudWatch; return a mapping of name to values.

    It is empty if CloudWatch has no values, or the job has no start time.

    Args:
        cloudwatch: boto3 client.
        job: name of the training job.
        names: names of at most 500 metrics, the limit of a GetMetricData request.
        description: DescribeTrainingJob's response.

    Raises:
        ServiceError: CloudWatch refuses.
    """
    start = description.get("TrainingStartTime") or description.get("CreationTime")
    if start is None or not names:
        return {}
    end = description.get("TrainingEndTime") or datetime.now(UTC)
    # Ask for at most 1,000 values, with a period in which CloudWatch still keeps them: one minute
    # for 15 days, 5 minutes for 63 days, one hour for 455 days
    # (https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/cloudwatch_concepts.html).
    age = (datetime.now(UTC) - start).days
    min_period = 60 if age < 15 else 300 if age < 63 else 3_600
    period = max(1, round((end - start).total_seconds() / 1_000 / min_period)) * min_period
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
