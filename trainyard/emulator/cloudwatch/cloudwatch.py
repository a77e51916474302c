"""CloudWatch's operations, in the two protocols that clients speak: JSON and the query protocol.

Dashboards are moto's: it only stores them. What would have to be done and is not (composite
alarms, anomaly detectors, insight rules, metric streams) is refused by name.
"""

import functools
import gzip
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from botocore.loaders import Loader
from moto.core.model import ServiceModel
from moto.core.parse import QueryParser
from moto.core.serialize import QuerySerializer
from werkzeug import Request, Response

from trainyard.emulator.api import ApiError
from trainyard.emulator.aws import Aws
from trainyard.emulator.cloudwatch.alarms import Alarms
from trainyard.emulator.cloudwatch.metrics import Metrics
from trainyard.emulator.cloudwatch.queries import Queries
from trainyard.emulator.moto_app import query_error
from trainyard.emulator.paging import page
from trainyard.emulator.rest import json_object
from trainyard.emulator.shapes import report

KEPT_BY_MOTO = ("PutDashboard", "GetDashboard", "ListDashboards", "DeleteDashboards")
log = logging.getLogger(__name__)


class CloudWatch:
    """``answer`` a request; ``begin`` to evaluate alarms. From any thread."""

    def __init__(self, root: Path, aws: Aws) -> None:
        self.metrics = Metrics(root / "metrics.sqlite")
        self.alarms = Alarms(root / "alarms.json", self.metrics, aws)
        self._operations = self._table() | Queries(self.metrics).operations()

    def begin(self) -> None:
        self.alarms.begin()

    def close(self) -> None:
        self.alarms.close()
        self.metrics.close()

    def answer(self, request: Request) -> Response | None:
        """None for what moto only stores."""
        if request.headers.get("Smithy-Protocol", "").startswith("rpc-v2-cbor"):
            return Response("CloudWatch speaks JSON and the query protocol here, not CBOR", 501)
        target = request.headers.get("X-Amz-Target", "").rpartition(".")[2]
        operation = target or request.values.get("Action", "")
        if operation in KEPT_BY_MOTO:
            return None
        try:
            model = _model().operation_model(operation) if operation in _names() else None
            if not model or operation not in self._operations:
                raise ApiError("InvalidAction", f"The emulator does not implement {operation}.")
            asked = _body(request) if target else _form(model, request)
            if why := report(model.input_shape, asked):
                raise ApiError("ValidationError", f"{operation}: {why}")
            found = self._operations[operation](asked)
            return _json(200, found) if target else _xml(model, found)
        except ApiError as failure:
            return _json_error(failure) if target else _xml_error(failure)

    def _table(self) -> dict[str, Callable[[dict], dict]]:
        alarms = self.alarms

        return {
            "PutMetricAlarm": alarms.put,
            "DescribeAlarms": self._describe,
            "SetAlarmState": alarms.set_state,
            "DeleteAlarms": alarms.delete,
        }

    def _describe(self, request: dict) -> dict:
        found = self.alarms.describe(request)
        if "MetricAlarm" not in request.get("AlarmTypes", ["MetricAlarm"]):
            found = []
        asked = request | {"MaxResults": request.get("MaxRecords", 50)}
        return page("MetricAlarms", found, asked, 50) | {"CompositeAlarms": []}


@functools.cache
def _model() -> ServiceModel:
    document = Loader().load_service_model("cloudwatch", "service-2")
    metadata = document["metadata"] | {"protocol": "query", "protocols": ["query"]}
    return ServiceModel(document | {"metadata": metadata}, "cloudwatch")


@functools.cache
def _names() -> frozenset[str]:
    return frozenset(_model().operation_names)


def _body(request: Request) -> dict:
    data = request.get_data()
    if request.headers.get("Content-Encoding") == "gzip":
        data = gzip.decompress(data)
    return json_object(data)


def _form(model: Any, request: Request) -> dict:
    return dict(QueryParser(model).parse({"values": request.values}))  # type: ignore[typeddict-item]


def _json(status: int, document: dict) -> Response:
    return Response(json.dumps(document), status, content_type="application/x-amz-json-1.0")


def _json_error(failure: ApiError) -> Response:
    response = _json(failure.status, {"__type": failure.code, "message": failure.message})
    response.headers["x-amzn-query-error"] = f"{failure.code};Sender"
    return response


def _xml(model: Any, found: dict) -> Response:
    written = QuerySerializer(model).serialize(found)
    return Response(written["body"], 200, content_type="text/xml")


def _xml_error(failure: ApiError) -> Response:
    return query_error(failure.code, failure.message, failure.status)
