"""The store of metric data: an SQLite file whose rows are values or sets of statistics."""

import hashlib
import hmac
import json
import logging
import re
import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from werkzeug import Request, Response

from trainyard.common.measures import (
    CONTENT_TYPE,
    OF_SERVICE,
    Measure,
    Sample,
    Source,
    render_metrics,
)
from trainyard.language.definition_document import END_STATUSES

# Seconds for which data are kept: CloudWatch's retention for one-minute periods.
RETENTION_SECONDS = 15 * 86400
log = logging.getLogger(__name__)
_SCHEMA = """
CREATE TABLE IF NOT EXISTS series (
    id INTEGER PRIMARY KEY, namespace TEXT NOT NULL, name TEXT NOT NULL, dimensions TEXT NOT NULL,
    UNIQUE (namespace, name, dimensions)
);
CREATE TABLE IF NOT EXISTS points (
    series INTEGER NOT NULL, t REAL NOT NULL, count REAL NOT NULL, sum REAL NOT NULL,
    least REAL NOT NULL, most REAL NOT NULL, unit TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS points_by_time ON points (series, t);
"""


@dataclass(frozen=True, slots=True)
class Point:
    """``count`` values at the time ``t``, in seconds since the epoch. If ``minimum == maximum``,
    all values are equal.
    """

    t: float
    count: float
    sum: float
    minimum: float
    maximum: float
    unit: str = "None"

    @classmethod
    def from_value(
        cls, value: float, unit: str = "None", t: float | None = None, count: float = 1
    ) -> "Point":
        return cls(time.time() if t is None else t, count, value * count, value, value, unit)


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric in AWS's sense: the same name with other dimensions is another metric."""

    namespace: str
    name: str
    dimensions: tuple[tuple[str, str], ...] = ()
    """(name, value) pairs, sorted by name."""

    @classmethod
    def from_dimensions(cls, namespace: str, name: str, dimensions: Mapping[str, str]) -> "Metric":
        return cls(namespace, name, tuple(sorted(dimensions.items())))


class Metrics:
    """The metric data in an SQLite file. Its methods are thread-safe."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.RLock()
        try:
            self._db = _open_store(path)
        except sqlite3.DatabaseError as damage:
            if isinstance(damage, sqlite3.OperationalError):
                raise  # the disk is full or read-only: the store itself is intact
            aside = path.with_suffix(".damaged")
            path.replace(aside)
            log.error(
                "%s cannot be read: %s; the metrics are lost, and were moved to %s",
                path,
                damage,
                aside,
            )
            self._db = _open_store(path)
        self._series_ids: dict[Metric, int] = {}

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def put(self, entries: Iterable[tuple[Metric, Point]]) -> None:
        """Store all points in one transaction."""
        with self._lock:
            rows = [
                (self._find_series_id(metric), p.t, p.count, p.sum, p.minimum, p.maximum, p.unit)
                for metric, p in entries
            ]
            self._db.execute("BEGIN")
            self._db.executemany("INSERT INTO points VALUES (?,?,?,?,?,?,?)", rows)
            self._db.execute("COMMIT")

    def read_points(self, metric: Metric, start: float, end: float, unit: str = "") -> list[Point]:
        """Return the points with start <= t < end in order of time; if ``unit`` is given, only
        those with that unit.
        """
        sql = "SELECT t, count, sum, least, most, unit FROM points WHERE series=? AND t>=? AND t<?"
        with self._lock:
            rows = self._db.execute(
                f"{sql} ORDER BY t", (self._find_series_id(metric), start, end)
            ).fetchall()
        return [Point(*row) for row in rows if unit in ("", row[5])]

    def compute_totals(self, namespaces: Sequence[str]) -> dict[Metric, tuple[float, float]]:
        """Return the number of values, and their sum, of each metric in these namespaces."""
        placeholders = ",".join("?" * len(namespaces))
        sql = (
            "SELECT namespace, name, dimensions, TOTAL(count), TOTAL(sum) FROM series "
            f"JOIN points ON points.series = series.id WHERE namespace IN ({placeholders}) "  # noqa: S608
            "GROUP BY series.id"
        )
        with self._lock:
            rows = self._db.execute(sql, tuple(namespaces)).fetchall()
        return {
            Metric(space, name, tuple((k, v) for k, v in json.loads(dimensions))): (count, total)
            for space, name, dimensions, count, total in rows
        }

    def list_metrics(self) -> list[Metric]:
        """Return every metric that has data, sorted."""
        sql = (
            "SELECT namespace, name, dimensions FROM series WHERE id IN (SELECT series FROM points)"
        )
        with self._lock:
            rows = self._db.execute(f"{sql} ORDER BY namespace, name, dimensions").fetchall()
        return [Metric(n, m, tuple((k, v) for k, v in json.loads(d))) for n, m, d in rows]

    def _find_series_id(self, metric: Metric) -> int:
        if metric not in self._series_ids:
            row = metric.namespace, metric.name, json.dumps(metric.dimensions)
            insert = "INSERT OR IGNORE INTO series (namespace, name, dimensions) VALUES (?,?,?)"
            self._db.execute(insert, row)
            select = "SELECT id FROM series WHERE namespace=? AND name=? AND dimensions=?"
            self._series_ids[metric] = self._db.execute(select, row).fetchone()[0]
        return self._series_ids[metric]


def _open_store(path: Path) -> sqlite3.Connection:
    """Open the store and delete data older than RETENTION_SECONDS. Raises
    :class:`sqlite3.DatabaseError` if it is damaged.
    """
    connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=OFF")  # a power cut may cost the last seconds
    connection.executescript(_SCHEMA)
    connection.execute("DELETE FROM points WHERE t < ?", (time.time() - RETENTION_SECONDS,))
    return connection


PLAIN: dict[str, Callable[[Sequence[Point]], float]] = {
    "SampleCount": lambda points: sum(p.count for p in points),
    "Sum": lambda points: sum(p.sum for p in points),
    "Average": lambda points: sum(p.sum for p in points) / sum(p.count for p in points),
    "Minimum": lambda points: min(p.minimum for p in points),
    "Maximum": lambda points: max(p.maximum for p in points),
}
_PERCENTILE = re.compile(r"p(\d{1,2}(?:\.\d{1,10})?|100)")


def is_supported_statistic(statistic: str) -> bool:
    """Return whether :func:`compute_statistic` supports ``statistic``: one of the five plain ones,
    or a percentile such as ``p99.9``.
    """
    return statistic in PLAIN or bool(_PERCENTILE.fullmatch(statistic))


def compute_statistic(statistic: str, points: Sequence[Point]) -> float | None:
    """Return the statistic of a period's data. Return None if there is no data, and for a
    percentile of sets of statistics, whose single values are unknown.
    """
    points_with_data = [point for point in points if point.count > 0]
    if not points_with_data:
        return None
    if statistic in PLAIN:
        return PLAIN[statistic](points_with_data)
    match = _PERCENTILE.fullmatch(statistic)
    assert match, statistic
    if any(point.minimum != point.maximum for point in points_with_data):
        return None
    return _compute_percentile(
        float(match[1]) / 100, sorted((p.minimum, p.count) for p in points_with_data)
    )


def _compute_percentile(share: float, values: list[tuple[float, float]]) -> float:
    """Return the smallest value that at least ``share`` (0..1) of all values do not exceed.

    ``values`` are sorted pairs (value, count).
    """
    target, total = share * sum(count for _, count in values), 0.0
    for value, count in values:
        total += count
        # 1e-9: rounding errors must not put the target above the last sum.
        if total >= target - 1e-9:
            return value
    return values[-1][0]


# Metrics that the emulator records about its own work, under AWS's names. Namespaces, names,
# dimensions and units are those of the developer guide, "Metrics for monitoring Amazon SageMaker AI
# with Amazon CloudWatch".

ENDPOINTS = "AWS/SageMaker"
TRAINING = "/aws/sagemaker/TrainingJobs"
PIPELINES = "AWS/Sagemaker/ModelBuildingPipeline"
MICROSECOND, MILLISECOND = 1e-6, 1e-3
_ENDINGS = {"Failed": "Failed", "Succeeded": "Succeeded", "Stopped": "Stopped"}


def record_invocation(
    metrics: Metrics,
    names: tuple[str, str, str],
    status: int,
    times: tuple[float, float],
    count: int,
) -> None:
    """Record one InvokeEndpoint.

    ``names`` are the endpoint, the variant, and the endpoint configuration that served it.
    ``status`` is the status of the container's response. ``times`` are the seconds that the
    container took, and the seconds that the service added. ``count`` is the number of the
    variant's instances.
    """
    now, (model, overhead) = time.time(), times
    values = {
        "Invocations": (1.0, "None"),
        "InvocationsPerInstance": (1.0 / count, "None"),
        "Invocation4XXErrors": (float(400 <= status < 500), "None"),
        "Invocation5XXErrors": (float(status >= 500), "None"),
        "InvocationModelErrors": (float(status >= 300), "None"),
        "ModelLatency": (model / MICROSECOND, "Microseconds"),
        "OverheadLatency": (max(0.0, overhead) / MICROSECOND, "Microseconds"),
    }
    # Recorded by configuration, too, so that an alarm can examine a single fleet.
    variant = {"EndpointName": names[0], "VariantName": names[1]}
    metrics.put(
        (Metric.from_dimensions(ENDPOINTS, name, dimensions), Point.from_value(value, unit, now))
        for dimensions in (variant, variant | {"EndpointConfigName": names[2]})
        for name, (value, unit) in values.items()
    )


def record_training_metrics(metrics: Metrics, job: str, values: list[tuple[str, float]]) -> None:
    """Record the values that MetricDefinitions found in a line of a training job's log."""
    dimensions = {"TrainingJobName": job}
    metrics.put(
        (Metric.from_dimensions(TRAINING, name, dimensions), Point.from_value(value))
        for name, value in values
    )


def record_execution(metrics: Metrics, record: dict, step: str | None) -> None:
    """Record a change of a pipeline execution's status, or of the status of its step ``step``."""
    dimensions = {"PipelineName": record["pipeline"]}
    if step is None:
        answer = record["answer"]
        status, began = answer["PipelineExecutionStatus"], answer["CreationTime"]
        word, has_ended = "Execution", status in END_STATUSES
    else:
        step_record = record["steps"][step]
        dimensions["StepName"] = step
        status, began = step_record["StepStatus"], step_record["StartTime"]
        word, has_ended = "Step", "EndTime" in step_record
    points = {}
    if status == "Executing":
        points[f"{word}Started"] = Point.from_value(1, "Count")
    if has_ended:
        points[f"{word}Duration"] = Point.from_value(
            (time.time() - began) / MILLISECOND, "Milliseconds"
        )
    if status in _ENDINGS:
        points[f"{word}{_ENDINGS[status]}"] = Point.from_value(1, "Count")
    metrics.put(
        (Metric.from_dimensions(PIPELINES, name, dimensions), point)
        for name, point in points.items()
    )


# The emulator's metrics in Prometheus' format: GET /metrics with a token that is derived from the
# secret. The samples come from CloudWatch's store, so both agree, even after a restart. When data
# become older than the store's retention they are deleted and a counter decreases, which Prometheus
# takes for a restart.

PATH = "/metrics"


def derive_scrape_token(secret: str) -> str:
    """Return the token for Prometheus. It is derived from the secret and gives access only to the
    metrics.
    """
    return hmac.new(secret.encode(), b"trainyard metrics", hashlib.sha256).hexdigest()


def is_scrape_request(request: Request) -> bool:
    """Return whether the request is for the metrics. A request for a bucket named metrics is signed
    instead and has no bearer token.
    """
    scheme = request.headers.get("Authorization", "").partition(" ")[0]
    return request.path == PATH and request.method == "GET" and scheme.lower() == "bearer"


def answer_scrape(request: Request, secret: str, stores: Iterable[Metrics]) -> Response:
    """Return the metrics of all regions' stores. Return status 401 if the token is wrong."""
    token = request.headers["Authorization"].partition(" ")[2].strip()
    if not hmac.compare_digest(token.encode(), derive_scrape_token(secret).encode()):
        challenge = {"WWW-Authenticate": 'Bearer realm="trainyard"'}
        return Response(
            "wrong token: trainyard metrics token prints the right one\n", 401, challenge
        )
    totals = {
        m: total for store in stores for m, total in store.compute_totals(_NAMESPACES).items()
    }
    body = render_metrics((measure, list(_iter_samples(measure, totals))) for measure in OF_SERVICE)
    return Response(body, content_type=CONTENT_TYPE)


_NAMESPACES = sorted({source.namespace for measure in OF_SERVICE for source in measure.sources})


def _iter_samples(measure: Measure, totals: dict[Metric, tuple[float, float]]) -> Iterator[Sample]:
    """Iterate over one sample per combination of labels: the sum over all sources."""
    sums: defaultdict[tuple[tuple[str, str], ...], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for source in measure.sources:
        for metric, (count, total) in totals.items():
            if (labels := _build_labels(measure, source, metric)) is not None:
                sums[tuple(labels.items())][0] += total * source.scale
                sums[tuple(labels.items())][1] += count
    for key, (total, count) in sorted(sums.items()):
        yield Sample(dict(key), total, count)


def _build_labels(measure: Measure, source: Source, metric: Metric) -> dict[str, str] | None:
    """Return the labels of a metric. Return None if the metric does not belong to the source."""
    dimensions = dict(metric.dimensions)
    if (metric.namespace, metric.name) != (source.namespace, source.name):
        return None
    if dimensions.keys() != measure.dimensions.keys():
        return None
    return {label: dimensions[name] for name, label in measure.dimensions.items()} | dict(
        source.labels
    )
