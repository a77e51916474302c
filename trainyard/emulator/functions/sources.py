"""Event source mappings: queues that are really polled, and whose messages a function gets.

<state>/functions/mappings.json   every mapping, by its UUID
"""

import json
import logging
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from trainyard.emulator.api import ApiError, make_arn
from trainyard.emulator.aws import Aws
from trainyard.emulator.documents import read_json, write_json
from trainyard.emulator.functions.code import invalid
from trainyard.emulator.functions.functions import Functions
from trainyard.emulator.regions import Thread

POLL = 1  # seconds of a long poll: a mapping that was deleted, and the end, are seen so late
TAKEN = ("BatchSize", "MaximumBatchingWindowInSeconds", "FunctionResponseTypes", "Enabled")
NAMED = ("EventSourceArn", "FunctionName", "UUID", "Tags")
BATCH = 10
log = logging.getLogger(__name__)


class Sources:
    """All mappings of a state directory."""

    def __init__(self, root: Path, functions: Functions, aws: Aws) -> None:
        self._path, self._functions, self._aws = root / "mappings.json", functions, aws
        self._all: dict[str, dict] = read_json(self._path) if self._path.exists() else {}
        self._lock = threading.RLock()
        self._closing = threading.Event()

    def operations(self) -> dict[str, Callable[[dict], dict]]:
        return {
            "CreateEventSourceMapping": self.create,
            "GetEventSourceMapping": self._find,
            "ListEventSourceMappings": self.list_mappings,
            "UpdateEventSourceMapping": self.update,
            "DeleteEventSourceMapping": self.delete,
        }

    def begin(self) -> None:
        """Polls for every mapping; the endpoint serves now."""
        for number in list(self._all):
            self._start(number)

    def close(self) -> None:
        self._closing.set()

    def create(self, request: dict) -> dict:
        source = request.get("EventSourceArn", "")
        if ":sqs:" not in source:
            raise invalid(f"EventSourceArn {source!r} is not polled by this emulator: only SQS is")
        _check(request)
        function = self._functions.configuration(request["FunctionName"])["FunctionArn"]
        number = str(uuid.uuid4())
        with self._lock:
            for other in self._all.values():
                if (other["EventSourceArn"], other["FunctionArn"]) == (source, function):
                    message = f"An event source mapping with SQS arn ({source}) and function"
                    message += f" ({function}) already exists: UUID {other['UUID']}"
                    raise ApiError("ResourceConflictException", message, 409)
            self._all[number] = {
                "UUID": number,
                "EventSourceMappingArn": make_arn("lambda", f"event-source-mapping:{number}"),
                "EventSourceArn": source,
                "FunctionArn": function,
            }
            answer = self._set(number, {"BatchSize": BATCH, "Enabled": True} | request)
        self._start(number)
        return answer

    def list_mappings(self, request: dict) -> dict:
        with self._lock:
            found = list(self._all.values())
        if source := request.get("EventSourceArn"):
            found = [each for each in found if each["EventSourceArn"] == source]
        if name := request.get("FunctionName"):
            function = self._functions.configuration(name)["FunctionArn"]
            found = [each for each in found if each["FunctionArn"] == function]
        return {"EventSourceMappings": found}

    def update(self, request: dict) -> dict:
        _check(request)
        with self._lock:
            self._find(request)
            if "FunctionName" in request:
                function = self._functions.configuration(request["FunctionName"])["FunctionArn"]
                self._all[request["UUID"]]["FunctionArn"] = function
            return self._set(request["UUID"], request)

    def delete(self, request: dict) -> dict:
        with self._lock:
            found = self._find(request)
            del self._all[request["UUID"]]
            write_json(self._path, self._all)
        return found | {"State": "Deleting"}

    def _find(self, request: dict) -> dict:
        with self._lock:
            if request["UUID"] not in self._all:
                message = "The resource you requested does not exist."
                raise ApiError("ResourceNotFoundException", message, 404)
            return dict(self._all[request["UUID"]])

    def _set(self, number: str, request: dict) -> dict:
        mapping = self._all[number]
        mapping |= {key: request[key] for key in TAKEN if key in request and key != "Enabled"}
        if "Enabled" in request:
            mapping["State"] = "Enabled" if request["Enabled"] else "Disabled"
        mapping["LastModified"] = time.time()
        write_json(self._path, self._all)
        return dict(mapping)

    # polling

    def _start(self, number: str) -> None:
        Thread(target=self._poll, args=(number,), name=number, daemon=True).start()

    def _poll(self, number: str) -> None:
        warned = False
        while not self._closing.is_set() and (mapping := self._all.get(number)):
            if mapping["State"] == "Disabled":
                self._closing.wait(POLL)
                continue
            try:
                self._once(mapping)
                warned = False
            except (ApiError, ClientError, BotoCoreError) as failure:
                if not warned and not self._closing.is_set():
                    log.warning("%s is not polled: %s", mapping["EventSourceArn"], failure)
                warned = True
                self._closing.wait(POLL)

    def _once(self, mapping: dict) -> None:
        """One batch: what the function took goes, the rest is seen again after its time-out."""
        sqs, source = self._aws.client("sqs"), mapping["EventSourceArn"]
        url = sqs.get_queue_url(QueueName=source.rpartition(":")[2])["QueueUrl"]
        found = sqs.receive_message(
            QueueUrl=url,
            WaitTimeSeconds=POLL,
            MaxNumberOfMessages=min(BATCH, mapping["BatchSize"]),
            AttributeNames=["All"],
            MessageAttributeNames=["All"],
        ).get("Messages", [])
        if not found:
            return
        records = [_record(message, source) for message in found]
        result = self._functions.call(mapping["FunctionArn"], {"Records": records})
        if result.failed:
            return
        kept = _failed(mapping, json.loads(result.payload))
        for message in found:
            if message["MessageId"] not in kept:
                sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])


def _check(request: dict) -> None:
    """Refuses by name what would change what the function gets."""
    empty: tuple[Any, ...] = (None, {}, [])
    for name, value in request.items():
        if name not in (*TAKEN, *NAMED) and value not in empty:
            raise invalid(f"{name} of an event source mapping is not run by this emulator")
    if not 1 <= request.get("BatchSize", 1) <= BATCH:
        raise invalid(f"BatchSize {request['BatchSize']}: the emulator takes 1 to {BATCH}")


def _record(message: dict, source: str) -> dict:
    return {
        "messageId": message["MessageId"],
        "receiptHandle": message["ReceiptHandle"],
        "body": message["Body"],
        "attributes": message.get("Attributes", {}),
        "messageAttributes": {
            name: {
                "stringValue": value.get("StringValue"),
                "stringListValues": [],
                "binaryListValues": [],
                "dataType": value["DataType"],
            }
            for name, value in message.get("MessageAttributes", {}).items()
        },
        "md5OfBody": message["MD5OfBody"],
        "eventSource": "aws:sqs",
        "eventSourceARN": source,
        "awsRegion": source.split(":")[3],
    }


def _failed(mapping: dict, answer: Any) -> set[str]:
    """Messages that a function with ReportBatchItemFailures says it did not take."""
    if "ReportBatchItemFailures" not in mapping.get("FunctionResponseTypes", []):
        return set()
    failures = answer.get("batchItemFailures", []) if isinstance(answer, dict) else []
    return {failure["itemIdentifier"] for failure in failures}
