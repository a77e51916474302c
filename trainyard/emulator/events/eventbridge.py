"""The EventBridge services: their requests, and threads that deliver events and fire schedules."""

import functools
import json
import logging
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from botocore.loaders import Loader
from botocore.model import ServiceModel
from werkzeug import Request, Response

from trainyard.emulator.events.event_rules import Deliverer, Event, Rules, Target, make_event
from trainyard.emulator.events.schedule_expressions import format_iso
from trainyard.emulator.events.schedules import Schedules
from trainyard.emulator.internal_client import Aws
from trainyard.emulator.request_scope import ApiError, Thread
from trainyard.emulator.request_shapes import check_shape
from trainyard.emulator.rest_requests import Rest, parse_json_object
from trainyard.language.definition_document import END_STATUSES

TICK = 0.5  # seconds between checks for due rules and schedules
SERVICES = ("events", "scheduler")
log = logging.getLogger(__name__)


class Events:
    """EventBridge and its Scheduler. ``changes`` converts changes to events. Call ``begin`` when
    the endpoint accepts requests, and ``close`` at the end.
    """

    def __init__(self, root: Path, aws: Aws) -> None:
        self._deliverer = Deliverer(aws)
        self._queue: queue.SimpleQueue[tuple[Target, str] | None] = queue.SimpleQueue()
        send: Callable[[Target, str], None] = lambda target, text: self._queue.put((target, text))  # noqa: E731
        self._rules, self._schedules = Rules(root / "rules", send), Schedules(root, send)
        self._rest = Rest("scheduler")
        self.changes = Changes(self._rules.emit)
        self._close_event = threading.Event()
        self._threads = [
            Thread(target=target, name=name, daemon=True)
            for target, name in ((self._deliver, "events"), (self._watch, "schedules"))
        ]

    def begin(self) -> None:
        now = time.time()
        self._rules.begin(now)
        self._schedules.begin(now)
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stop the threads. Events that were emitted are delivered first."""
        self._close_event.set()
        self._queue.put(None)
        for thread in self._threads:
            if thread.ident:
                thread.join()

    def answer(self, service: str, request: Request) -> Response:
        """Return the answer to a request to ``events`` or ``scheduler``."""
        if service == "scheduler":
            return self._rest.answer(request, self._schedules.list_operations())
        return self._answer_events(request)

    def _answer_events(self, request: Request) -> Response:
        operation = request.headers.get("X-Amz-Target", "").rpartition(".")[2]
        operations = self._rules.list_operations()
        try:
            if operation not in operations:
                text = f"The emulator does not implement {operation} of EventBridge."
                raise ApiError("UnknownOperationException", text)
            parameters = parse_json_object(request.get_data())
            check_shape(_load_service_model().operation_model(operation), parameters)
            answer = operations[operation](parameters)
        except ApiError as failure:
            body = {"__type": failure.code, "message": failure.message}
            return Response(json.dumps(body), failure.status, content_type=_JSON)
        return Response(json.dumps(answer), content_type=_JSON)

    def _deliver(self) -> None:
        while (entry := self._queue.get()) is not None:
            try:
                self._deliverer.deliver(*entry)
            except Exception:
                # One event must not stop the delivery of all others. The log has the cause.
                log.exception("an event for %s was lost", entry[0]["Arn"])

    def _watch(self) -> None:
        while not self._close_event.wait(TICK):
            now = time.time()
            try:
                self._rules.fire_due_rules(now)
                self._schedules.fire_due_schedules(now)
            except Exception:
                # For example because the disk is full. The next check tries again.
                log.exception("due rules and schedules could not be fired")


_JSON = "application/x-amz-json-1.1"


@functools.cache
def _load_service_model() -> ServiceModel:
    return ServiceModel(Loader().load_service_model("events", "service-2"), "events")


# Events of SageMaker: developer guide, "Events that Amazon SageMaker sends to Amazon EventBridge".
# An event is sent for each new status, in the order in which the statuses are reported.


SOURCE = "aws.sagemaker"
EXECUTION = "SageMaker Model Building Pipeline Execution Status Change"
STEP = "SageMaker Model Building Pipeline Execution Step Status Change"
PACKAGE = "SageMaker Model Package State Change"
JOBS = {
    "Training": "SageMaker Training Job State Change",
    "Processing": "SageMaker Processing Job State Change",
    "Transform": "SageMaker Transform Job State Change",
}
_LEADING_STATUSES = ("Completed", "Failed", "Stopping", "Stopped", "MaxRuntimeExceeded")
"""Secondary statuses that a job gets shortly before the corresponding status."""


class Changes:
    """Call ``emit`` with an event for each new status. Its methods are thread-safe and return
    quickly.
    """

    def __init__(self, emit: Callable[[Event], None]) -> None:
        self._emit = emit
        self._last_statuses: dict[str, tuple[str, ...]] = {}
        """The last reported status by key: an ARN, or an execution's ARN and a step's name."""
        self._lock = threading.Lock()

    def report_job(self, kind: str, record: dict[str, Any]) -> None:
        """Report a job, even if only its SecondaryStatus has changed. ``record`` is its
        description.
        """
        arn, status = record[f"{kind}JobArn"], record[f"{kind}JobStatus"]
        second = record.get("SecondaryStatus", "")
        if status == "InProgress" and second in _LEADING_STATUSES:
            return
        if kind in JOBS and self._record_status(arn, (status, second)):
            detail = {name: _to_milliseconds(name, value) for name, value in record.items()}
            name = {f"{kind}JobName": arn.rpartition("/")[2]}
            self._emit(make_event(SOURCE, JOBS[kind], name | detail, [arn]))

    def report_package(self, package: dict[str, Any]) -> None:
        """Report a model package. ``package`` is its description."""
        arn = package["ModelPackageArn"]
        detail = {name: _to_milliseconds(name, value) for name, value in package.items()}
        self._emit(make_event(SOURCE, PACKAGE, detail, [arn]))

    def report_execution(self, record: dict[str, Any]) -> None:
        """Report a pipeline execution and its steps. ``record`` has its description (``answer``)
        and its steps.
        """
        answer = record["answer"]
        arn = answer["PipelineExecutionArn"]
        common = {"pipelineArn": arn.partition("/execution/")[0], "pipelineExecutionArn": arn}
        resources = list(common.values())
        status, before = answer["PipelineExecutionStatus"], self._find_last_status(arn)
        if status in END_STATUSES and before in (None, status):
            return  # it ended in an earlier emulator, or was reported
        if status not in END_STATUSES and self._record_status(arn, (status,)):
            self._emit(
                make_event(
                    SOURCE, EXECUTION, common | _build_execution_detail(answer, before), resources
                )
            )
        for name, step in record["steps"].items():
            key, earlier = f"{arn} {name}", self._find_last_status(f"{arn} {name}")
            if self._record_status(key, (step["StepStatus"],)) and (
                earlier or "EndTime" not in step
            ):
                detail = common | _build_step_detail(step, earlier)
                self._emit(make_event(SOURCE, STEP, detail, resources))
        # The end of an execution is reported after the ends of its steps.
        if status in END_STATUSES and self._record_status(arn, (status,)):
            self._emit(
                make_event(
                    SOURCE, EXECUTION, common | _build_execution_detail(answer, before), resources
                )
            )

    def _find_last_status(self, key: str) -> str | None:
        return self._last_statuses.get(key, (None,))[0]

    def _record_status(self, key: str, status: tuple[str, ...]) -> bool:
        """Record the status; return whether it differs from the last one recorded for ``key``."""
        with self._lock:
            new = self._last_statuses.get(key) != status
            self._last_statuses[key] = status
            return new


def _build_execution_detail(answer: dict[str, Any], before: str | None) -> dict[str, Any]:
    status = answer["PipelineExecutionStatus"]
    detail = {
        "currentPipelineExecutionStatus": status,
        "executionStartTime": format_iso(answer["CreationTime"]),
    }
    if before:
        detail["previousPipelineExecutionStatus"] = before
    for name in ("DisplayName", "Description"):
        if text := answer.get(f"PipelineExecution{name}"):
            detail[f"pipelineExecution{name}"] = text
    if status in END_STATUSES:
        detail["executionEndTime"] = format_iso(answer["LastModifiedTime"])
    return detail


def _build_step_detail(step: dict[str, Any], before: str | None) -> dict[str, Any]:
    detail = {
        "stepName": step["StepName"],
        "stepType": step.get("StepType", ""),
        "stepStartTime": format_iso(step["StartTime"]),
        "currentStepStatus": step["StepStatus"],
        "previousStepStatus": before or "Starting",
        "metadata": _to_camel_case(step.get("Metadata", {})),
        "failureReason": step.get("FailureReason", ""),
        "cacheHitResult": _to_camel_case(step.get("CacheHitResult", {})),
    }
    return detail | ({"stepEndTime": format_iso(step["EndTime"])} if "EndTime" in step else {})


def _to_camel_case(value: Any) -> Any:
    """Return a copy with the first letter of each key in lower case: ``{"TrainingJob": …}`` becomes
    ``{"trainingJob": …}``.
    """
    if isinstance(value, dict):
        return {name[:1].lower() + name[1:]: _to_camel_case(inner) for name, inner in value.items()}
    return value


def _to_milliseconds(name: str, value: Any) -> Any:
    """Return a copy with times in milliseconds since the epoch, as a job's event has them."""
    if isinstance(value, dict):
        return {inner: _to_milliseconds(inner, child) for inner, child in value.items()}
    if isinstance(value, list):
        return [_to_milliseconds(name, child) for child in value]
    return int(value * 1000) if name.endswith("Time") and isinstance(value, float) else value
