"""EventBridge as a whole: what answers its requests, one thread that delivers, one that watches
the clock."""

import functools
import json
import logging
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path

from botocore.loaders import Loader
from botocore.model import ServiceModel
from werkzeug import Request, Response

from trainyard.emulator.api import ApiError
from trainyard.emulator.aws import Aws
from trainyard.emulator.events.changes import Changes
from trainyard.emulator.events.rules import Rules
from trainyard.emulator.events.schedules import Schedules
from trainyard.emulator.events.targets import Deliverer, Target
from trainyard.emulator.regions import Thread
from trainyard.emulator.rest import Rest, check, error, json_object

TICK = 0.5  # seconds between looks at the clock
SERVICES = ("events", "scheduler")
log = logging.getLogger(__name__)


class Events:
    """``changes`` takes what happens. ``begin`` it when the endpoint serves; ``close`` it."""

    def __init__(self, root: Path, aws: Aws) -> None:
        self._deliverer = Deliverer(aws)
        self._waiting: queue.SimpleQueue[tuple[Target, str] | None] = queue.SimpleQueue()
        send: Callable[[Target, str], None] = lambda target, text: self._waiting.put((target, text))  # noqa: E731
        self._rules, self._schedules = Rules(root / "rules", send), Schedules(root, send)
        self._rest = Rest("scheduler")
        self.changes = Changes(self._rules.emit)
        self._closed = threading.Event()
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
        """What has been emitted is delivered first."""
        self._closed.set()
        self._waiting.put(None)
        for thread in self._threads:
            if thread.ident:
                thread.join()

    def answer(self, service: str, request: Request) -> Response:
        """The answer to a request to ``events`` or ``scheduler``."""
        return self._scheduler(request) if service == "scheduler" else self._events(request)

    def _events(self, request: Request) -> Response:
        operation = request.headers.get("X-Amz-Target", "").rpartition(".")[2]
        operations = self._rules.operations()
        try:
            if operation not in operations:
                text = f"The emulator does not implement {operation} of EventBridge."
                raise ApiError("UnknownOperationException", text)
            parameters = json_object(request.get_data())
            check(_model().operation_model(operation), parameters)
            found = operations[operation](parameters)
        except ApiError as failure:
            body = {"__type": failure.code, "message": failure.message}
            return Response(json.dumps(body), failure.status, content_type=_JSON)
        return Response(json.dumps(found), content_type=_JSON)

    def _scheduler(self, request: Request) -> Response:
        operations = self._schedules.operations()
        try:
            operation, parameters = self._rest.read(request)
            if operation not in operations:
                text = f"The emulator does not implement {operation} of EventBridge Scheduler."
                raise ApiError("UnknownOperationException", text)
            return self._rest.write(operation, operations[operation](parameters))
        except ApiError as failure:
            return error(failure)

    def _deliver(self) -> None:
        while (entry := self._waiting.get()) is not None:
            try:
                self._deliverer.deliver(*entry)
            except Exception:
                # one event must not end the delivery of all others: the cause goes to the log
                log.exception("an event for %s was lost", entry[0]["Arn"])

    def _watch(self) -> None:
        while not self._closed.wait(TICK):
            now = time.time()
            try:
                self._rules.fire(now)
                self._schedules.fire(now)
            except Exception:
                # a full disk, say: the clock goes on, and tries again
                log.exception("the clock's rules and schedules could not be seen to")


_JSON = "application/x-amz-json-1.1"


@functools.cache
def _model() -> ServiceModel:
    return ServiceModel(Loader().load_service_model("events", "service-2"), "events")
