"""Test whether an endpoint's responses, by truths that arrived later, are worse than evaluated.

Truths are in Model Monitor's format (developer guide, "Ingest ground truth labels and merge them
with predictions"): JSON Lines below ``prefix/yyyy/mm/dd/hh``, by the day of their arrival. A truth
is joined with a captured request by its inference ID, or by the event ID if the request has none.
"""

import csv
import gzip
import io
import json
import random
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from operator import attrgetter
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any

import numpy as np
from scipy.stats import t as student

from pipelines.endpoint.drift import QUALITY, Change
from pipelines.endpoint.endpoint_requests import UNREADABLE, find_value, parse_captured_body
from pipelines.endpoint.rollout import find_served_package
from pipelines.recipe.config import Recipe
from pipelines.recipe.sections import Monitor
from pipelines.registry.champion import open_evidence
from pipelines.registry.package_evidence import Absent, split_s3_uri
from trainyard.aws_clients import service_errors
from trainyard.common.errors import DataError, RecipeError, suggest_nearest

# A model's requests and responses: captured by an endpoint, or read from files.
#
# Data capture: developer guide, "Capture data from real-time endpoint". At most ``MOST`` records of
# each source are kept, drawn at random, so that memory does not grow with the traffic.

MOST = 10_000
"""Maximum number of records of a source that are compared; they show a shift of a fiftieth of the
distribution.
"""
NO_VARIANT = ""
"""Variant of a record that was not captured."""
TIME = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """One record, and the model's response to it."""

    record: Mapping[str, Any]
    answer: Any = None
    """The JSON response; None if it is not known."""
    variant: str = NO_VARIANT
    """The endpoint's variant that responded; its name contains the model's version."""
    truth: float | None = None
    """The right response, if it is known and a number."""
    captured_at: datetime | None = None
    """When it was captured, in UTC."""


@dataclass
class Source:
    """The records of one source; ``add`` keeps at most ``MOST`` of them."""

    number: int = 0
    """Number of records, including those not kept."""
    unread: int = 0
    """Number of captured lines that could not be read."""
    unread_reason: str = ""
    """Why the last of these could not be read."""
    requests: list[RecordedRequest] = field(default_factory=list)
    truth_source: "Source | None" = None
    """The captured requests for which a truth arrived; None if the source has no truths."""
    _draw: random.Random = field(default_factory=lambda: random.Random(0))

    def add(self, request: RecordedRequest) -> None:
        """Add a record, keeping a random sample (reservoir sampling: Vitter 1985, algorithm R)."""
        self.number += 1
        if len(self.requests) < MOST:
            self.requests.append(request)
        # The n-th record replaces a kept one with probability MOST / n.
        elif (index := self._draw.randrange(self.number)) < MOST:
            self.requests[index] = request


def read_captures(
    s3: Any,
    root: str,
    start: datetime,
    end: datetime,
    truths: Mapping[str, float | None] = MappingProxyType({}),
) -> Source:
    """Return the requests captured from ``start`` (included) to ``end`` (excluded), both in UTC,
    ordered by time.

    Args:
        root: S3 URI of the endpoint's captured data; each folder in it is a variant.
        truths: mapping of each request's ID to its truth.

    Raises:
        ServiceError: S3 refused.
    """
    source = Source(truth_source=Source())
    bucket, prefix = split_s3_uri(f"{root}/")
    with service_errors(f"reading the captured requests below {root}"):
        pages = s3.get_paginator("list_objects_v2").paginate(
            Bucket=bucket, Prefix=prefix, Delimiter="/"
        )
        folders = [entry["Prefix"] for page in pages for entry in page.get("CommonPrefixes", ())]
    for folder in folders:
        for _, line in iter_daily_lines(s3, f"s3://{bucket}/{folder}", start, end):
            add_captured_request(source, line, folder[len(prefix) : -1], (start, end), truths)
    source.requests.sort(key=attrgetter("captured_at"))
    return source


def iter_daily_lines(
    s3: Any, uri: str, start: datetime, end: datetime
) -> Iterator[tuple[str, bytes]]:
    """Yield (location, line) of the files below ``yyyy/mm/dd/``, for each day from ``start`` to
    ``end``.

    Raises:
        ServiceError: S3 refused.
    """
    bucket, prefix = split_s3_uri(f"{uri.rstrip('/')}/")
    days = (end.date() - start.date()).days + 1
    with service_errors(f"reading {uri}"):
        for day in (start + timedelta(days=n) for n in range(days)):
            for key in _iter_keys(s3, bucket, f"{prefix}{day:%Y/%m/%d}/"):
                body = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
                for number, line in enumerate(body.splitlines(), 1):
                    yield f"s3://{bucket}/{key}, line {number}", line


def add_captured_request(
    source: Source,
    line: bytes,
    variant: str,
    period: tuple[datetime, datetime],
    truths: Mapping[str, float | None],
) -> None:
    """Add the request in a captured line to ``source`` if it is in the period.

    A line that cannot be read is counted as unread; this function never raises for a bad line.
    """
    start, end = period
    try:
        event = json.loads(line)
        metadata = event["eventMetadata"]
        name = metadata.get("inferenceId") or metadata.get("eventId")
        captured_at = datetime.strptime(metadata["inferenceTime"], TIME)
        if not start <= captured_at.replace(tzinfo=start.tzinfo) < end:
            return
        capture_data = event["captureData"]
        request_body = parse_captured_body(capture_data["endpointInput"])
        if not isinstance(request_body, dict):
            raise ValueError("the request is not a JSON object")
        truth = truths.get(name)
    except UNREADABLE as error:
        source.unread, source.unread_reason = source.unread + 1, repr(error)
        return
    try:
        answer = parse_captured_body(capture_data["endpointOutput"])
    except UNREADABLE:  # not captured, or not JSON: then only the features are compared
        answer = None
    request = RecordedRequest(_find_record(request_body), answer, variant, truth, captured_at)
    source.add(request)
    # A truth of None is not a number: the request counts as not compared.
    if source.truth_source is not None and name in truths:
        source.truth_source.add(request)


def _find_record(request_body: dict[str, Any]) -> dict[str, Any]:
    """Return the record in a request's body: its member ``record``, or the body itself."""
    record = request_body.get("record")
    return record if isinstance(record, dict) else request_body


def read_record_files(s3: Any, uri: str) -> Source:
    """Return the records of CSV, JSON Lines and Parquet files, or of a transform's scores, in
    random order, because the order in a file is not that of time.

    Raises:
        DataError: there are no records, or a file cannot be read.
        ServiceError: S3 refused.
    """
    source = Source()
    bucket, prefix = split_s3_uri(uri)
    with service_errors(f"reading {uri}"):
        for key in _iter_keys(s3, bucket, prefix):
            if PurePosixPath(key).name.startswith((".", "_")):
                continue
            body = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
            try:
                for row in _parse_rows(PurePosixPath(key), body):
                    has_answer = isinstance(row.get("input"), dict) and "answer" in row
                    source.add(
                        RecordedRequest(_find_record(row["input"]), row["answer"])
                        if has_answer
                        else RecordedRequest(row)
                    )
            except (*UNREADABLE, OSError, EOFError, zlib.error, csv.Error) as error:
                raise DataError(
                    f"s3://{bucket}/{key}: {error}; monitor.baseline must be CSV with a header, "
                    "JSON Lines or Parquet"
                ) from None
    if not source.number:
        raise DataError(f"{uri}: holds no records; monitor.baseline names a file or a prefix")
    random.Random(0).shuffle(source.requests)
    return source


def _parse_rows(path: PurePosixPath, body: bytes) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file, whose suffix names its format; raise ValueError for another."""
    if path.suffix == ".gz":
        path, body = path.with_suffix(""), gzip.decompress(body)
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq  # imported only here, because it takes a while

        yield from pq.read_table(io.BytesIO(body)).to_pylist()
    elif path.suffix == ".csv":
        yield from csv.DictReader(io.StringIO(body.decode("utf-8-sig")))
    elif path.suffix in (".jsonl", ".ndjson"):
        yield from (json.loads(line) for line in body.splitlines() if line.strip())
    else:
        raise ValueError(f"format {path.suffix or 'without a suffix'} is not supported")


def _iter_keys(s3: Any, bucket: str, prefix: str) -> Iterator[str]:
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    yield from (item["Key"] for page in pages for item in page.get("Contents", ()))


Losses = Callable[[np.ndarray, np.ndarray], np.ndarray]
TINY = 1e-15
"""Smallest probability whose logarithm is taken."""
OF_TRUTHS: Mapping[str, Losses] = {
    "log_loss": lambda p, y: -np.log(np.clip(np.where(y == 1, p, 1 - p), TINY, 1)),
    "brier": lambda p, y: np.square(p - y),
    "accuracy": lambda p, y: ((p > 0.5) == (y == 1)).astype(float),
    "mae": lambda p, y: np.abs(p - y),
    "mse": lambda p, y: np.square(p - y),
}
"""For each metric, a function of predicted numbers and truths, both (n,), that returns the metric
of each response.
"""
OF_PROBABILITIES = ("log_loss", "brier", "accuracy")
WORDS = {"true": 1.0, "false": 0.0}


@dataclass(frozen=True, slots=True)
class RecordedQuality:
    """What the evaluation of the serving model recorded about one metric."""

    variant: str
    """The endpoint's variant of that model."""
    metric: str
    lower_is_better: bool
    value: float
    standard_error: float
    margin: float = 0.0
    """How much worse the responses may be, in the metric's unit."""


def read_recorded_quality(
    recipe: Recipe, monitor: Monitor, sagemaker: Any, endpoint: str
) -> RecordedQuality:
    """Return the recorded quality of the model that the endpoint serves.

    Raises:
        RecipeError: the metric cannot be computed from truths.
        DataError: the registry has no record of the metric, or no standard error of it.
        ServiceError: AWS refused.
    """
    workload_spec = recipe.workload_spec
    metric = monitor.metric or workload_spec.primary_metric
    possible = [name for name in OF_TRUTHS if name in workload_spec.metrics]
    if metric not in possible:
        hint = (
            suggest_nearest(metric, possible) if possible else f"{recipe.kind} has no such metric"
        )
        raise RecipeError(
            f"monitor.metric: {metric} cannot be computed from a predicted number and its truth; "
            f"{hint}"
        )
    package = find_served_package(sagemaker, endpoint)
    if package is None:
        raise DataError(f"endpoint {endpoint}: serves no model package, so nothing was recorded")
    evidence = open_evidence(package)
    try:
        entry = evidence.read_json(evidence.find_source("Statistics")["S3Uri"])["metrics"][metric]
        value, error = float(entry["value"]), float(entry["standard_error"])
    except (Absent, KeyError, TypeError) as cause:
        raise DataError(
            f"{package}: its evaluation recorded no {metric} with a standard error ({cause}); "
            "remove monitor.truths, or set monitor.metric to one that it has"
        ) from None
    margin = recipe.gate.comparisons.get("non_inferiority", {}).get(metric, 0.0)
    variant = f"version-{package.rpartition('/')[2]}"
    return RecordedQuality(
        variant, metric, workload_spec.metrics[metric] == "lower", value, error, margin
    )


def read_truths(s3: Any, uri: str, start: datetime, end: datetime) -> dict[str, float | None]:
    """Return the truths, by request ID, that arrived from the day of ``start`` to the day of
    ``end``; None for a truth that is not a number, ``true`` or ``false``.

    Raises:
        DataError: a line is not in Model Monitor's format.
        ServiceError: S3 refused.
    """
    truth_values: dict[str, float | None] = {}
    for location, line in iter_daily_lines(s3, uri, start, end):
        try:
            event = json.loads(line)
            truth_data = event["groundTruthData"]["data"]
            truth_values[event["eventMetadata"]["eventId"]] = _parse_number(truth_data)
        except UNREADABLE as error:
            raise DataError(
                f"{location}: {error!r}; a line of ground truths is {{'groundTruthData': {{'data': "
                "'1', 'encoding': 'CSV'}, 'eventMetadata': {'eventId': '…'}, 'eventVersion': '0'}"
            ) from None
    return truth_values


def _parse_number(raw_value: Any) -> float | None:
    """Return the value as a finite number, or None if it is not one; ``true`` is 1, ``false`` 0."""
    text = str(raw_value).strip().lower()
    try:
        value = WORDS[text] if text in WORDS else float(text)
    except ValueError:
        return None
    return value if np.isfinite(value) else None


def judge_quality(
    answers: Sequence[RecordedRequest], path: str, group: str | None, record: RecordedQuality
) -> tuple[Change | None, Iterator[str]]:
    """Return the change of the metric, tested one-sided, and notes on what was not compared.

    The change is None if there are fewer than two truths to compare.

    Args:
        answers: requests whose truths are known.
        path: path of the predicted number in a response.
        group: column of a request; requests with equal values in it depend on each other.
    """
    rows = [request for request in answers if request.variant == record.variant]
    pairs = [(find_value(request.answer, path), request.truth) for request in rows]
    are_usable = [_is_usable(record.metric, *pair) for pair in pairs]
    values = np.array(
        [pair for pair, is_usable in zip(pairs, are_usable, strict=True) if is_usable], float
    )
    names = [
        request.record.get(group or "")
        for request, is_usable in zip(rows, are_usable, strict=True)
        if is_usable
    ]
    notes = _explain_uncompared(record, len(rows), len(values))
    if len(values) < 2:
        return None, notes
    losses = OF_TRUTHS[record.metric](*values.T)
    return compute_quality_change(losses, names if None not in names else None, record), notes


def _is_usable(metric: str, prediction: Any, truth: float | None) -> bool:
    """Return whether the metric can be computed from the prediction and its truth."""
    if truth is None or isinstance(prediction, bool) or not isinstance(prediction, int | float):
        return False
    if metric in OF_PROBABILITIES:
        return 0 <= prediction <= 1 and truth in (0, 1)
    return _parse_number(prediction) is not None  # neither NaN nor beyond float64


def _explain_uncompared(record: RecordedQuality, rows: int, compared_count: int) -> Iterator[str]:
    """Yield notes on truths that were not compared."""
    if compared_count < rows:
        expectation = (
            "a probability and a truth of 0 or 1"
            if record.metric in OF_PROBABILITIES
            else ("a number and its truth")
        )
        yield (
            f"{record.metric}: {rows - compared_count} of {rows} truths not compared: not "
            f"{expectation}"
        )
    if compared_count < 2:
        yield f"{record.metric}: not compared, too few truths of {record.variant}: {compared_count}"


def compute_quality_change(
    losses: np.ndarray, groups: Sequence[Any] | None, record: RecordedQuality
) -> Change:
    """Return the metric's change, with Welch's one-sided p-value (Biometrika 34, 1947).

    The evaluation's standard error is taken as exactly known; that of the responses is the standard
    error of a mean over groups, as in ``training.scores``.

    Args:
        losses: the metric of each response, (n,), n > 1.
        groups: the group of each response; None if each is a group of its own.
    """
    value = float(losses.mean())
    pulls = (losses - value) / len(losses)
    if groups is not None:
        _, group_indices = np.unique(
            np.array([str(group) for group in groups]), return_inverse=True
        )
        pulls = np.bincount(group_indices, pulls)
    count = len(pulls)
    shortfall = (value - record.value) * (1 if record.lower_is_better else -1) - record.margin
    own_variance = float(np.square(pulls).sum()) * count / (count - 1) if count > 1 else np.inf
    variance = own_variance + record.standard_error**2
    if count < 2:  # one group says nothing about the others
        p_value = 1.0
    elif not variance:
        p_value = float(shortfall <= 0)
    else:
        # Welch's degrees of freedom; those of the evaluation are infinite, because its standard
        # error is taken as known.
        freedom = (variance / own_variance) ** 2 * (count - 1) if own_variance else np.inf
        p_value = float(student.sf(shortfall / variance**0.5, freedom))
    movement = f"{record.value:.4g} when evaluated → {value:.4g} of {len(losses):,} answers"
    return Change(record.metric, QUALITY, p_value, None, movement)
