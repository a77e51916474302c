"""Numbers of an evaluation: from property files, and from a model package's metadata and report."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from botocore.exceptions import ClientError, ParamValidationError

LARGEST = 1_000_000
"""Largest number of bytes read of a property file."""

LATE = timedelta(seconds=5)
"""Largest difference of clocks: outputs written later than this after a job are another job's."""

DEEPEST = 20
"""Levels of a property file that are searched for numbers."""

LONGEST = 1 << 20
"""Largest number of bytes read of a package's report."""

LEVELS = 6
"""Levels of such a report that are searched for numbers."""

_NUMBER = re.compile(r"[-+]?\d{1,15}(?:\.\d{0,20})?(?:[eE][-+]?\d{1,2})?")


# property files


def place(job: Mapping[str, Any], file: Mapping[str, Any]) -> str | None:
    """Return the URI of one of a step's PropertyFiles; None before its processing job has ended.

    ``job``: DescribeProcessingJob's answer.
    """
    outputs = (job.get("ProcessingOutputConfig") or {}).get("Outputs") or ()
    uris = {
        output.get("OutputName"): (output.get("S3Output") or {}).get("S3Uri") for output in outputs
    }
    uri, name = uris.get(file.get("OutputName")), file.get("FilePath")
    if not uri or job.get("ProcessingEndTime") is None or not isinstance(name, str):
        return None
    return f"{uri.rstrip('/')}/{name}"


def read_object(s3: Any, uri: str) -> tuple[datetime | None, bytes]:
    """Return the time at which an object was written, and its content, cut if it is large.

    Raises:
        ClientError: the object does not exist, or S3 refuses.
    """
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    answer = s3.get_object(Bucket=bucket, Key=key)
    with answer["Body"] as body:
        return answer.get("LastModified"), body.read(LARGEST + 1)


def is_overwritten(job: Mapping[str, Any], write_time: datetime | None) -> bool:
    """Return whether another job has written the file since."""
    end_time = job.get("ProcessingEndTime")
    return end_time is not None and write_time is not None and write_time > end_time + LATE


def in_json(content: bytes) -> Iterator[tuple[str, float]]:
    """Iterate over the numbers in a JSON text, by their paths in it; none if it is not JSON."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return
    yield from _leaves("", document, DEEPEST)


def _leaves(path: str, value: Any, deeper: int) -> Iterator[tuple[str, float]]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        if isinstance(value, float) or abs(value) < 1e300:  # else too large for a float
            yield path, float(value)
    elif isinstance(value, dict | list) and deeper:
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for name, inner in pairs:
            yield from _leaves(f"{path}.{name}" if path else str(name), inner, deeper - 1)


# model packages


def of_package(
    package: Mapping[str, Any], report: Callable[[str], Mapping[str, float]]
) -> dict[str, float]:
    """Return the numbers of a package: of its customer metadata, then of its ModelQuality report
    in S3, by the path in it.

    Args:
        package: DescribeModelPackage's answer.
        report: reads the numbers of the report at a URI.
    """
    numbers: dict[str, float] = {}
    for name, text in (package.get("CustomerMetadataProperties") or {}).items():
        if (number := _number(text)) is not None:
            numbers[name] = number
    quality = (package.get("ModelMetrics") or {}).get("ModelQuality") or {}
    if uri := (quality.get("Statistics") or {}).get("S3Uri"):
        for name, number in report(uri).items():
            numbers.setdefault(name, number)
    return numbers


def in_report(s3: Any, uri: str, registration_time: datetime | None = None) -> dict[str, float]:
    """Return the report's numbers; none if it does not exist, is too long or not JSON.

    ``registration_time``: time of the package's registration; a report written later is another
    version's.
    """
    url = urlsplit(uri)
    try:
        answer = s3.get_object(Bucket=url.netloc, Key=url.path.lstrip("/"))
        write_time = answer.get("LastModified")
        if answer.get("ContentLength", 0) > LONGEST or _is_later(write_time, registration_time):
            return {}
        return dict(_name_numbers(json.loads(answer["Body"].read(LONGEST))))
    except (
        ClientError,
        ParamValidationError,
        ValueError,
        RecursionError,
        OverflowError,
    ):  # another account's bucket, gone, not JSON, or an integer too large for a float
        return {}


def _is_later(write_time: datetime | None, registration_time: datetime | None) -> bool:
    return (
        write_time is not None
        and registration_time is not None
        and write_time > registration_time + LATE
    )


def _name_numbers(report: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, float]]:
    """Iterate over leaf numbers by their path, without the parts that all share in SageMaker's
    schema: the family, such as ``regression_metrics``, and ``value``.
    """
    if isinstance(report, Mapping) and len(path) < LEVELS:
        for name, inner in report.items():
            if name == "value" and path:
                yield from _name_numbers(inner, path)
            elif not path and str(name).endswith("_metrics") and isinstance(inner, Mapping):
                yield from _name_numbers(inner)
            else:
                yield from _name_numbers(inner, (*path, str(name)))
    elif isinstance(report, int | float) and not isinstance(report, bool):
        yield ".".join(path), float(report)


def _number(text: Any) -> float | None:
    """Return a text as a number; None for others, also for hashes such as ``12e45678``."""
    return float(text) if isinstance(text, str) and _NUMBER.fullmatch(text) else None
