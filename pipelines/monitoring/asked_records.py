"""Records that a model was asked, and its answers: captured by an endpoint, or of a file.

Data capture: developer guide, "Capture data from real-time endpoint". Of each source at most
``MOST`` records are kept, drawn at random, so that memory does not grow with the traffic.
"""

import csv
import gzip
import io
import json
import random
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from operator import attrgetter
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any

from pipelines.registry.package_evidence import split
from pipelines.serving.captured_answers import UNREADABLE, body
from trainyard.aws_clients import service_errors
from trainyard.common.errors import DataError

MOST = 10_000
"""Records of a source that are compared; these show a shift of a fiftieth of the distribution."""
NO_VARIANT = ""
"""Variant of a record that is not captured."""
TIME = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """One record, and the answer to it."""

    record: Mapping[str, Any]
    answer: Any = None
    """The JSON answer; None where it is not known."""
    variant: str = NO_VARIANT
    """The endpoint's variant that answered: it is named after the model's version."""
    truth: float | None = None
    """What the answer should have been, where that is known and a number."""
    captured_at: datetime | None = None
    """When it was captured, in UTC."""


@dataclass
class Source:
    """Records of one source. ``add`` keeps at most ``MOST`` of them."""

    number: int = 0
    """Number of records, those not kept included."""
    unread: int = 0
    """Number of captured lines that were not read."""
    unread_reason: str = ""
    """Why the last of these was not."""
    requests: list[RecordedRequest] = field(default_factory=list)
    truth_source: "Source | None" = None
    """The captured records whose truth is known."""
    _draw: random.Random = field(default_factory=lambda: random.Random(0))

    def add(self, request: RecordedRequest) -> None:
        """Add a record (reservoir sampling: Vitter 1985, algorithm R)."""
        self.number += 1
        if len(self.requests) < MOST:
            self.requests.append(request)
        elif (place := self._draw.randrange(self.number)) < MOST:
            self.requests[place] = request


def read_captures(
    s3: Any,
    root: str,
    start: datetime,
    end: datetime,
    truths: Mapping[str, float | None] = MappingProxyType({}),
) -> Source:
    """Return what was captured from ``start`` to before ``end``, both in UTC, by time.

    Args:
        root: S3 URI of the endpoint's captured data; variants are the folders in it.
        truths: ID of a request → its truth.

    Raises:
        ServiceError: S3 refused.
    """
    source = Source(truth_source=Source())
    bucket, prefix = split(f"{root}/")
    with service_errors(f"reading what was captured below {root}"):
        pages = s3.get_paginator("list_objects_v2").paginate(
            Bucket=bucket, Prefix=prefix, Delimiter="/"
        )
        folders = [entry["Prefix"] for page in pages for entry in page.get("CommonPrefixes", ())]
    for folder in folders:
        for _, line in lines_of_days(s3, f"s3://{bucket}/{folder}", start, end):
            add_captured(source, line, folder[len(prefix) : -1], (start, end), truths)
    source.requests.sort(key=attrgetter("captured_at"))
    return source


def lines_of_days(s3: Any, uri: str, start: datetime, end: datetime) -> Iterator[tuple[str, bytes]]:
    """Iterate over (place, line) of the files below ``yyyy/mm/dd/`` of the days from ``start`` to
    ``end``. Raises ServiceError.
    """
    bucket, prefix = split(f"{uri.rstrip('/')}/")
    days = (end.date() - start.date()).days + 1
    with service_errors(f"reading {uri}"):
        for day in (start + timedelta(days=n) for n in range(days)):
            for key in _keys(s3, bucket, f"{prefix}{day:%Y/%m/%d}/"):
                body = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
                for number, line in enumerate(body.splitlines(), 1):
                    yield f"s3://{bucket}/{key}, line {number}", line


def add_captured(
    source: Source,
    line: bytes,
    variant: str,
    period: tuple[datetime, datetime],
    truths: Mapping[str, float | None],
) -> None:
    """Add a captured line's request to ``source``, or count it as unread, whatever stands in it."""
    start, end = period
    try:
        event = json.loads(line)
        metadata = event["eventMetadata"]
        name = metadata.get("inferenceId") or metadata.get("eventId")
        captured_at = datetime.strptime(metadata["inferenceTime"], TIME)
        if not start <= captured_at.replace(tzinfo=start.tzinfo) < end:
            return
        sides = event["captureData"]
        request_body = body(sides["endpointInput"])
        if not isinstance(request_body, dict):
            raise ValueError("the request is not a JSON object")
        truth = truths.get(name)
    except UNREADABLE as error:
        source.unread, source.unread_reason = source.unread + 1, repr(error)
        return
    try:
        answer = body(sides["endpointOutput"])
    except UNREADABLE:  # not captured, or no JSON: the features are compared
        answer = None
    request = RecordedRequest(_record(request_body), answer, variant, truth, captured_at)
    source.add(request)
    if source.truth_source is not None and name in truths:
        source.truth_source.add(request)


def _record(request_body: dict[str, Any]) -> dict[str, Any]:
    inside = request_body.get("record")
    return inside if isinstance(inside, dict) else request_body


def of_files(s3: Any, uri: str) -> Source:
    """Return the records of CSV, JSON Lines and Parquet files, or of a transform's scores, in an
    order drawn at random: that of a file is by no time.

    Raises:
        DataError: there is none, or a file cannot be read.
        ServiceError: S3 refused.
    """
    source = Source()
    bucket, prefix = split(uri)
    with service_errors(f"reading {uri}"):
        for key in _keys(s3, bucket, prefix):
            if PurePosixPath(key).name.startswith((".", "_")):
                continue
            body = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
            try:
                for row in _rows(PurePosixPath(key), body):
                    has_answer = isinstance(row.get("input"), dict) and "answer" in row
                    source.add(
                        RecordedRequest(_record(row["input"]), row["answer"])
                        if has_answer
                        else RecordedRequest(row)
                    )
            except (*UNREADABLE, OSError, EOFError, zlib.error, csv.Error) as error:
                raise DataError(
                    f"s3://{bucket}/{key}: {error}; monitor.baseline is of CSV with a header, JSON "
                    "Lines or Parquet"
                ) from None
    if not source.number:
        raise DataError(f"{uri}: holds no records; monitor.baseline names a file or a prefix")
    random.Random(0).shuffle(source.requests)
    return source


def _rows(path: PurePosixPath, body: bytes) -> Iterator[dict[str, Any]]:
    if path.suffix == ".gz":
        path, body = path.with_suffix(""), gzip.decompress(body)
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq  # takes a while

        yield from pq.read_table(io.BytesIO(body)).to_pylist()
    elif path.suffix == ".csv":
        yield from csv.DictReader(io.StringIO(body.decode("utf-8-sig")))
    elif path.suffix in (".jsonl", ".ndjson"):
        yield from (json.loads(line) for line in body.splitlines() if line.strip())
    else:
        raise ValueError(f"format {path.suffix or 'without a suffix'} is not read")


def _keys(s3: Any, bucket: str, prefix: str) -> Iterator[str]:
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    yield from (item["Key"] for page in pages for item in page.get("Contents", ()))
