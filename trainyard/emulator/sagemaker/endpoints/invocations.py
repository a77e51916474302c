"""InvokeEndpoint: pass a request of sagemaker-runtime to a container and return its response."""

import base64
import json
import logging
import re
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

from trainyard.emulator.cloudwatch.metric_store import record_invocation
from trainyard.emulator.request_scope import ApiError, read_account
from trainyard.emulator.s3.object_store import ObjectStore
from trainyard.emulator.sagemaker.endpoints.endpoint import Endpoint, VariantAnswer
from trainyard.emulator.sagemaker.endpoints.model_containers import TARGET
from trainyard.emulator.sagemaker.endpoints.serving_instance import Answer, WeightedRoundRobin
from trainyard.emulator.sagemaker.jobs.job import JobServices
from trainyard.emulator.sagemaker.jobs.transfers import join_key, split_uri

SERVES = ("InService", "Updating", "RollingBack", "SystemUpdating")
_PATH = re.compile(r"/endpoints/([^/]+)/invocations")
_OTHERS = {
    "async-invocations": "InvokeEndpointAsync",
    "invocations-response-stream": "InvokeEndpointWithResponseStream",
}
_PASSED_HEADERS = ("Content-Type", "Accept", "X-Amzn-Sagemaker-Custom-Attributes", TARGET)
_REFUSED_HEADERS = {
    "X-Amzn-Sagemaker-Target-Container-Hostname": "TargetContainerHostname (direct invocation)",
    "X-Amzn-Sagemaker-Inference-Component": "InferenceComponentName (inference components)",
    "X-Amzn-Sagemaker-Session-Id": "SessionId (stateful sessions)",
}


@dataclass(frozen=True, slots=True)
class Reply:
    """The response to InvokeEndpoint: the container's response, and the headers that the service
    adds.
    """

    answer: Answer
    headers: dict[str, str] = field(default_factory=dict)


class Invocations:
    """Handle InvokeEndpoint, with metrics and data capture. Its methods are thread-safe."""

    def __init__(self, services: JobServices) -> None:
        self._job_services = services
        self._captures: dict[tuple[str, str], Capture] = {}
        self._lock = threading.Lock()

    def handle_request(
        self, find: Callable[[str], Endpoint], path: str, body: bytes, headers: dict[str, str]
    ) -> Reply:
        """Handle an InvokeEndpoint request with the path ``path``.

        ``find`` returns the endpoint with a name, or raises ApiError. Raises ``ValidationError``,
        ``ModelError``.
        """
        began = time.monotonic()
        endpoint = _find_endpoint(find, path)
        titled_headers = {name.title(): value for name, value in headers.items()}
        for name, feature in _REFUSED_HEADERS.items():
            if name in titled_headers:
                raise ApiError("ValidationError", f"{feature} is not supported here")
        passed_headers = {
            name: titled_headers[name] for name in _PASSED_HEADERS if name in titled_headers
        }
        variant_answer = endpoint.invoke(
            body, passed_headers, titled_headers.get("X-Amzn-Sagemaker-Target-Variant")
        )
        inference = titled_headers.get("X-Amzn-Sagemaker-Inference-Id", "")
        self._capture_request(
            endpoint, variant_answer, body, titled_headers.get("Content-Type", ""), inference
        )
        config, variant = variant_answer.config["EndpointConfigName"], variant_answer.variant
        # Metrics: the model's own time, and the overhead around it.
        overhead_seconds = time.monotonic() - began - variant_answer.seconds
        record_invocation(
            self._job_services.metrics,
            (endpoint.name, variant.name, config),
            variant_answer.answer.status or 500,  # status 0: the container did not respond
            (variant_answer.seconds, overhead_seconds),
            variant.count,
        )
        reply_headers = {"x-Amzn-Invoked-Production-Variant": variant_answer.variant.name}
        if variant_answer.answer.attributes:
            reply_headers["X-Amzn-SageMaker-Custom-Attributes"] = variant_answer.answer.attributes
        return Reply(variant_answer.answer, reply_headers)

    def flush_endpoint(self, endpoint: str) -> None:
        """Write a stopped endpoint's captured data from memory to S3, and forget the endpoint."""
        with self._lock:
            keys = [key for key in self._captures if key[0] == endpoint]
            captures = [self._captures.pop(key) for key in keys]
        for capture in captures:
            capture.flush()

    def close(self) -> None:
        """Write the captured data of all endpoints from memory to S3."""
        for endpoint in {key[0] for key in self._captures}:
            self.flush_endpoint(endpoint)

    def _capture_request(
        self,
        endpoint: Endpoint,
        variant_answer: VariantAnswer,
        body: bytes,
        kind: str,
        inference: str,
    ) -> None:
        """Capture the request and its response, if the endpoint configuration enables it and there
        was no error.
        """
        config = variant_answer.config.get("DataCaptureConfig") or {}
        if not config.get("EnableCapture") or variant_answer.answer.is_error:
            return
        key = endpoint.name, variant_answer.config["EndpointConfigName"]
        with self._lock:
            if key not in self._captures:
                self._captures[key] = Capture(self._job_services.objects, endpoint.name, config)
            capture = self._captures[key]
        capture.add(variant_answer.variant.name, body, kind, variant_answer.answer, inference)


def _find_endpoint(find: Callable[[str], Endpoint], path: str) -> Endpoint:
    """Return the endpoint that the request path names. Raises ``ValidationError`` if it does not
    exist or does not serve.
    """
    match = _PATH.fullmatch(path)
    if not match:
        operation = _OTHERS.get(path.rpartition("/")[2], path)
        raise ApiError("ValidationError", f"{operation} is not supported here: use InvokeEndpoint")
    try:
        endpoint = find(match[1])
    except ApiError:
        message = f"Endpoint {match[1]} of account {read_account()} not found."
        raise ApiError("ValidationError", message) from None
    if endpoint.status not in SERVES:
        message = (
            f"Endpoint {match[1]} of account {read_account()} is not in service: {endpoint.status}"
        )
        raise ApiError("ValidationError", message)
    return endpoint


# Data capture. The objects are ``<prefix>/<endpoint>/<variant>/yyyy/mm/dd/hh/<uuid>.jsonl`` with
# one line per request: developer guide, "Capture data from real-time endpoint".


HOLD = 1.0  # seconds for which lines stay in memory, to write several into one object
log = logging.getLogger(__name__)


class Capture:
    """Data capture of one endpoint. Its methods are thread-safe."""

    def __init__(self, objects: ObjectStore, endpoint: str, config: dict) -> None:
        """Start the capture. ``config`` is the DataCaptureConfig."""
        self._objects, self._endpoint, self._config = objects, endpoint, config
        self._lines: dict[str, list[str]] = {}
        self._turns, self._lock = WeightedRoundRobin(), threading.Lock()
        self._timer: threading.Timer | None = None

    def add(
        self, variant: str, request_body: bytes, request_type: str, answer: Answer, inference: str
    ) -> None:
        """Add a request and its response, or skip it according to the sampling percentage.

        ``inference`` is the client's InferenceId, or an empty string.
        """
        percentage = self._config["InitialSamplingPercentage"]
        with self._lock:
            shares = {"yes": float(percentage), "no": 100.0 - percentage}
            if not percentage or self._turns.choose_name(shares) == "no":
                return
            line = self._format_line(request_body, request_type, answer, inference)
            self._lines.setdefault(variant, []).append(line)
            if not self._timer:
                self._timer = threading.Timer(HOLD, self.flush)
                self._timer.daemon = True
                self._timer.start()

    def flush(self) -> None:
        """Write the lines in memory to S3."""
        with self._lock:
            lines, self._lines, self._timer = self._lines, {}, None
        bucket, prefix = split_uri(self._config["DestinationS3Uri"])
        hour = time.strftime("%Y/%m/%d/%H", time.gmtime())
        for variant, captures in lines.items():
            name = f"{self._endpoint}/{variant}/{hour}/{uuid.uuid4()}.jsonl"
            text = "".join(f"{line}\n" for line in captures)
            try:
                self._objects.put_bytes(bucket, join_key(prefix, name), text.encode())
            except (ApiError, OSError) as failure:
                # The bucket is missing or the disk is full: the endpoint keeps serving.
                log.warning("endpoint %s: data capture failed: %s", self._endpoint, failure)

    def _format_line(
        self, request_body: bytes, asked_type: str, answer: Answer, inference: str
    ) -> str:
        """Return the JSON line for one request."""
        modes = {option["CaptureMode"] for option in self._config["CaptureOptions"]}
        data = {}
        if modes & {"Input", "InputAndOutput"}:
            data["endpointInput"] = self._encode_body(request_body, asked_type, "INPUT")
        if modes & {"Output", "InputAndOutput"}:
            data["endpointOutput"] = self._encode_body(answer.body, answer.content_type, "OUTPUT")
        event = {"eventId": str(uuid.uuid4())}
        event |= {"inferenceId": inference} if inference else {}
        event["inferenceTime"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        return json.dumps({"captureData": data, "eventMetadata": event, "eventVersion": "0"})

    def _encode_body(self, body: bytes, content_type: str, mode: str) -> dict:
        """Return a request's or response's body as the line contains it: text, or Base64."""
        kinds = self._config.get("CaptureContentTypeHeader") or {}
        plain = content_type.partition(";")[0].strip()
        encoding = "BASE64"
        if plain in kinds.get("CsvContentTypes", ()):
            encoding = "CSV"
        elif plain in kinds.get("JsonContentTypes", ()):
            encoding = "JSON"
        data = body.decode(errors="replace")
        if encoding == "BASE64" or data.encode() != body:  # or the body is not UTF-8 text
            data, encoding = base64.b64encode(body).decode(), "BASE64"
        entry = {"observedContentType": content_type, "mode": mode, "data": data}
        return entry | {"encoding": encoding}
