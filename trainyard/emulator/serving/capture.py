"""Data capture: what an endpoint was asked and what it answered, as AWS writes it to S3.

``<prefix>/<endpoint>/<variant>/yyyy/mm/dd/hh/<uuid>.jsonl``, a line for each request: developer
guide, "Capture data from real-time endpoint".
"""

import base64
import json
import logging
import threading
import time
import uuid

from trainyard.emulator.api import ApiError
from trainyard.emulator.jobs.transfers import join_key, split_uri
from trainyard.emulator.objects import ObjectStore
from trainyard.emulator.serving.fleet import Turns
from trainyard.emulator.serving.instance import Answer

HOLD = 1.0  # seconds that lines are held for a file of several
log = logging.getLogger(__name__)


class Capture:
    """One endpoint's. Every method may be called from any thread."""

    def __init__(self, objects: ObjectStore, endpoint: str, config: dict) -> None:
        """``config``: DataCaptureConfig."""
        self._objects, self._endpoint, self._config = objects, endpoint, config
        self._lines: dict[str, list[str]] = {}
        self._turns, self._lock = Turns(), threading.Lock()
        self._timer: threading.Timer | None = None

    def add(
        self, variant: str, asked: bytes, asked_type: str, answer: Answer, inference: str
    ) -> None:
        """Of the configured percentage of requests; ``inference``: the client's InferenceId."""
        percentage = self._config["InitialSamplingPercentage"]
        with self._lock:
            shares = {"yes": float(percentage), "no": 100.0 - percentage}
            if not percentage or self._turns.next(shares) == "no":
                return
            line = self._line(asked, asked_type, answer, inference)
            self._lines.setdefault(variant, []).append(line)
            if not self._timer:
                self._timer = threading.Timer(HOLD, self.flush)
                self._timer.daemon = True
                self._timer.start()

    def flush(self) -> None:
        """Writes what is held."""
        with self._lock:
            lines, self._lines, self._timer = self._lines, {}, None
        bucket, prefix = split_uri(self._config["DestinationS3Uri"])
        hour = time.strftime("%Y/%m/%d/%H", time.gmtime())
        for variant, found in lines.items():
            name = f"{self._endpoint}/{variant}/{hour}/{uuid.uuid4()}.jsonl"
            text = "".join(f"{line}\n" for line in found)
            try:
                self._objects.put_bytes(bucket, join_key(prefix, name), text.encode())
            except (ApiError, OSError) as failure:  # no such bucket, no room: it serves on
                log.warning("endpoint %s: not captured: %s", self._endpoint, failure)

    def _line(self, asked: bytes, asked_type: str, answer: Answer, inference: str) -> str:
        modes = {option["CaptureMode"] for option in self._config["CaptureOptions"]}
        data = {}
        if modes & {"Input", "InputAndOutput"}:
            data["endpointInput"] = self._side(asked, asked_type, "INPUT")
        if modes & {"Output", "InputAndOutput"}:
            data["endpointOutput"] = self._side(answer.body, answer.content_type, "OUTPUT")
        event = {"eventId": str(uuid.uuid4())}
        event |= {"inferenceId": inference} if inference else {}
        event["inferenceTime"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        return json.dumps({"captureData": data, "eventMetadata": event, "eventVersion": "0"})

    def _side(self, body: bytes, content_type: str, mode: str) -> dict:
        kinds = self._config.get("CaptureContentTypeHeader") or {}
        plain = content_type.partition(";")[0].strip()
        encoding = "BASE64"
        if plain in kinds.get("CsvContentTypes", ()):
            encoding = "CSV"
        elif plain in kinds.get("JsonContentTypes", ()):
            encoding = "JSON"
        data = body.decode(errors="replace")
        if encoding == "BASE64" or data.encode() != body:  # or the type promises what is not there
            data, encoding = base64.b64encode(body).decode(), "BASE64"
        side = {"observedContentType": content_type, "mode": mode, "data": data}
        return side | {"encoding": encoding}
