"""CloudWatch's operations, in two protocols of its clients: JSON and the query protocol.

Metrics are stored and read, and alarms on them are evaluated. Everything else is refused.
"""

import functools
import gzip
import json
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from botocore.loaders import Loader
from botocore.utils import parse_timestamp
from moto.core.model import ServiceModel
from moto.core.parse import QueryParser
from moto.core.serialize import QuerySerializer
from werkzeug import Request, Response

from trainyard.emulator.cloudwatch.alarms import Alarms, parse_metric
from trainyard.emulator.cloudwatch.metric_store import (
    Metrics,
    Point,
    compute_statistic,
    is_supported_statistic,
)
from trainyard.emulator.request_scope import ApiError, make_page
from trainyard.emulator.request_shapes import describe_shape_errors
from trainyard.emulator.rest_requests import parse_json_object
from trainyard.emulator.services.moto_app import make_query_error


class CloudWatch:
    """The CloudWatch service. Call ``answer`` with a request, and ``begin`` to start evaluating
    alarms. Its methods are thread-safe.
    """

    def __init__(self, root: Path) -> None:
        self.metrics = Metrics(root / "metrics.sqlite")
        self.alarms = Alarms(root / "alarms.json", self.metrics)
        self._operations: dict[str, Callable[[dict], dict]] = {
            "PutMetricAlarm": self.alarms.put,
            "DescribeAlarms": self._describe,
            "DeleteAlarms": self.alarms.delete,
            **Queries(self.metrics).list_operations(),
        }

    def begin(self) -> None:
        self.alarms.begin()

    def close(self) -> None:
        self.alarms.close()
        self.metrics.close()

    def answer(self, request: Request) -> Response:
        """Return the response to a request. Operations that are not implemented are refused with
        an error that names them.
        """
        if request.headers.get("Smithy-Protocol", "").startswith("rpc-v2-cbor"):
            return Response("CloudWatch supports JSON and the query protocol here, not CBOR", 501)
        target = request.headers.get("X-Amz-Target", "").rpartition(".")[2]
        operation = target or request.values.get("Action", "")
        try:
            model = (
                _load_service_model().operation_model(operation)
                if operation in _list_operation_names()
                else None
            )
            if not model or operation not in self._operations:
                raise ApiError("InvalidAction", f"The emulator does not implement {operation}.")
            parameters = _read_json_body(request) if target else _parse_form(model, request)
            if reason := describe_shape_errors(model.input_shape, parameters):
                raise ApiError("ValidationError", f"{operation}: {reason}")
            result = self._operations[operation](parameters)
            if target:
                return _make_json_response(200, result)
            body = QuerySerializer(model).serialize(result)["body"]
            return Response(body, 200, content_type="text/xml")
        except ApiError as failure:
            if not target:
                return make_query_error(failure.code, failure.message, failure.status)
            response = _make_json_response(
                failure.status, {"__type": failure.code, "message": failure.message}
            )
            response.headers["x-amzn-query-error"] = f"{failure.code};Sender"
            return response

    def _describe(self, request: dict) -> dict:
        alarms = self.alarms.describe(request)
        if "MetricAlarm" not in request.get("AlarmTypes", ["MetricAlarm"]):
            alarms = []
        paging_request = request | {"MaxResults": request.get("MaxRecords", 50)}
        return make_page("MetricAlarms", alarms, paging_request, 50) | {"CompositeAlarms": []}


@functools.cache
def _load_service_model() -> ServiceModel:
    document = Loader().load_service_model("cloudwatch", "service-2")
    # botocore's own document lists newer protocols first, which QueryParser cannot read.
    metadata = document["metadata"] | {"protocol": "query", "protocols": ["query"]}
    return ServiceModel(document | {"metadata": metadata}, "cloudwatch")


@functools.cache
def _list_operation_names() -> frozenset[str]:
    return frozenset(_load_service_model().operation_names)


def _read_json_body(request: Request) -> dict:
    data = request.get_data()
    if request.headers.get("Content-Encoding") == "gzip":
        data = gzip.decompress(data)
    return parse_json_object(data)


def _parse_form(model: Any, request: Request) -> dict:
    return dict(QueryParser(model).parse({"values": request.values}))  # type: ignore[typeddict-item]


def _make_json_response(status: int, document: dict) -> Response:
    return Response(json.dumps(document), status, content_type="application/x-amz-json-1.0")


MOST = 1440  # maximum data points that GetMetricStatistics returns (its documentation)


class Queries:
    """Operations on metric data. Times in requests are numbers, ISO 8601 or datetimes; times in
    responses are seconds since the epoch.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def list_operations(self) -> dict[str, Callable[[dict], dict]]:
        return {
            "PutMetricData": self.put,
            "ListMetrics": self.list_metrics,
            "GetMetricStatistics": self.read_statistics,
            "GetMetricData": self.read_data,
        }

    def put(self, request: dict) -> dict:
        """Perform PutMetricData. Raises ``InvalidParameterValue`` for data that AWS refuses; then
        none of it is stored.
        """
        if request.get("EntityMetricData"):
            raise _make_parameter_error("EntityMetricData is not stored here: use MetricData")
        for number, datum in enumerate(request.get("MetricData", []), 1):
            _check_values(datum, f"MetricData.member.{number}")
        points = [
            (parse_metric(datum | {"Namespace": request["Namespace"]}), point)
            for datum in request.get("MetricData", [])
            for point in _iter_points(datum)
        ]
        self._metrics.put(points)
        return {}

    def list_metrics(self, request: dict) -> dict:
        """Perform ListMetrics."""
        dimensions = [(d["Name"], d.get("Value")) for d in request.get("Dimensions", [])]
        metrics = [
            {
                "Namespace": metric.namespace,
                "MetricName": metric.name,
                "Dimensions": [{"Name": n, "Value": value} for n, value in metric.dimensions],
            }
            for metric in self._metrics.list_metrics()
            if request.get("Namespace") in (None, metric.namespace)
            and request.get("MetricName") in (None, metric.name)
            and all(
                any(n == name and value in (None, v) for n, v in metric.dimensions)
                for name, value in dimensions
            )
        ]
        return make_page("Metrics", metrics, request, 500)

    def read_statistics(self, request: dict) -> dict:
        """Perform GetMetricStatistics."""
        plain, percentiles = request.get("Statistics", []), request.get("ExtendedStatistics", [])
        if not plain and not percentiles:
            raise _make_parameter_error("Statistics or ExtendedStatistics: name at least one")
        _check_statistics([*plain, *percentiles])
        start, end, period = _parse_span(request)
        if (end - start) / period > MOST:
            message = (
                f"You have requested up to {int((end - start) / period)} datapoints, which exceeds "
                f"the limit of {MOST}. You may reduce the datapoints requested by increasing "
                "Period, or decreasing the time range."
            )
            raise ApiError("InvalidParameterCombination", message)
        points = self._metrics.read_points(
            parse_metric(request), start, end, request.get("Unit", "")
        )
        datapoints = []
        for t, group in _group_by_period(points, start, period):
            entry: dict[str, Any] = {"Timestamp": t, "Unit": group[0].unit}
            entry |= {name: compute_statistic(name, group) for name in plain}
            values = {
                n: value for n in percentiles if (value := compute_statistic(n, group)) is not None
            }
            datapoints.append(entry | ({"ExtendedStatistics": values} if percentiles else {}))
        return {"Label": request["MetricName"], "Datapoints": datapoints}

    def read_data(self, request: dict) -> dict:
        """Perform GetMetricData."""
        results = [
            self._compute_result(query, request)
            for query in request["MetricDataQueries"]
            if query.get("ReturnData", True)
        ]
        return {"MetricDataResults": results, "Messages": []}

    def _compute_result(self, query: dict, request: dict) -> dict:
        """Return the complete result of one query of GetMetricData."""
        if query.get("Expression") or "MetricStat" not in query:
            raise _make_parameter_error(
                f"query {query['Id']!r}: metric math and SEARCH are not evaluated here"
            )
        stat = query["MetricStat"]
        _check_statistics([stat["Stat"]])
        start, end, period = _parse_span(request | {"Period": stat["Period"]})
        points = self._metrics.read_points(
            parse_metric(stat["Metric"]), start, end, stat.get("Unit", "")
        )
        values = [
            (t, compute_statistic(stat["Stat"], f))
            for t, f in _group_by_period(points, start, period)
        ]
        pairs = [(t, value) for t, value in values if value is not None]
        if request.get("ScanBy", "TimestampDescending") == "TimestampDescending":
            pairs.reverse()
        return {
            "Id": query["Id"],
            "Label": query.get("Label") or stat["Metric"]["MetricName"],
            "Timestamps": [t for t, _ in pairs],
            "Values": [value for _, value in pairs],
            "StatusCode": "Complete",
        }


def to_seconds(value: Any) -> float:
    """Convert a time in a request to seconds since the epoch."""
    return value.timestamp() if isinstance(value, datetime) else parse_timestamp(value).timestamp()


def _check_values(datum: dict, location: str) -> None:
    """Raise ApiError, in CloudWatch's words, if a datum gives both Value and another form of
    values, or a wrong number of Counts.
    """
    for other in ("Values", "StatisticValues"):
        if "Value" in datum and datum.get(other):
            message = (
                f"The parameters {location}.Value and {location}.{other} are mutually exclusive "
                "and you have specified both."
            )
            raise ApiError("InvalidParameterCombination", message)
    if datum.get("Counts") and len(datum["Counts"]) != len(datum.get("Values", [])):
        message = (
            f"The parameters {location}.Values and {location}.Counts must be of the same size."
        )
        raise _make_parameter_error(message)


def _iter_points(datum: dict) -> Iterator[Point]:
    """Iterate over the points of a datum of PutMetricData. Raises ApiError for a bad value."""
    t = to_seconds(datum["Timestamp"]) if "Timestamp" in datum else time.time()
    unit, statistics = datum.get("Unit", "None"), datum.get("StatisticValues")
    if statistics:
        for value in statistics.values():
            _check_finite(datum, value)
        count, total = statistics["SampleCount"], statistics["Sum"]
        yield Point(t, count, total, statistics["Minimum"], statistics["Maximum"], unit)
        return
    values = datum.get("Values", [datum["Value"]] if "Value" in datum else [])
    counts = datum.get("Counts", [1] * len(values))
    if not values:
        raise _make_parameter_error(
            f"{datum['MetricName']}: expected Value, StatisticValues or Values"
        )
    for value, count in zip(values, counts, strict=True):
        _check_finite(datum, value)
        yield Point.from_value(value, unit, t, count)


def _check_finite(datum: dict, value: float) -> None:
    if not math.isfinite(value):
        raise _make_parameter_error(f"{datum['MetricName']}: {value} is not a finite number")


def _parse_span(request: dict) -> tuple[float, float, int]:
    """Return (start, end, period) in seconds. ``start`` is rounded down to the start of a
    period.
    """
    start, end, period = (
        to_seconds(request["StartTime"]),
        to_seconds(request["EndTime"]),
        request["Period"],
    )
    if period < 1 or (period not in (1, 5, 10, 20, 30) and period % 60):
        raise _make_parameter_error(
            f"Period {period}: expected 1, 5, 10, 20, 30 or a multiple of 60"
        )
    if end <= start:
        raise _make_parameter_error(
            "The parameter StartTime must be less than the parameter EndTime."
        )
    return start // period * period, end, period


def _group_by_period(
    points: list[Point], start: float, period: int
) -> list[tuple[float, list[Point]]]:
    """Return (start, points) of each period that has data, in order."""
    groups: dict[float, list[Point]] = defaultdict(list)
    for point in points:
        groups[start + (point.t - start) // period * period].append(point)
    return sorted(groups.items())


def _check_statistics(statistics: list[str]) -> None:
    if unknown := [name for name in statistics if not is_supported_statistic(name)]:
        raise _make_parameter_error(
            f"statistic {unknown[0]!r} is not computed here: use SampleCount, Sum, Average, "
            "Minimum, Maximum, or a percentile such as p99"
        )


def _make_parameter_error(message: str) -> ApiError:
    return ApiError("InvalidParameterValue", message)
