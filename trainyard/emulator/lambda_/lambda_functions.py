"""Lambda's operations on functions, and invocations of functions.

<state>/functions/<name>/function.json   configuration, tags, name of the folder with the code
<state>/functions/<name>/code-.../       the code, unzipped
<state>/functions/<name>/events/<id>     an accepted event that has not been delivered yet
"""

import base64
import hashlib
import io
import json
import logging
import re
import secrets
import shutil
import threading
import time
import uuid
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from werkzeug import Request, Response

from trainyard.common.errors import EmulatorError
from trainyard.emulator.json_documents import read_json, write_json
from trainyard.emulator.lambda_.function_invocation import LARGEST, Invocation, Result
from trainyard.emulator.request_scope import ApiError, Thread, make_arn, make_page
from trainyard.emulator.rest_requests import Rest
from trainyard.emulator.s3.object_store import ObjectStore
from trainyard.emulator.sagemaker.jobs.job import JobServices

# The configuration of a function; settings that are not supported here are refused.

MOST = 262144000  # bytes of all unzipped files must be less than this


@dataclass(frozen=True, slots=True)
class Code:
    """The unzipped code of a function. ``folder`` is the name of its folder."""

    sha256: str
    size: int
    folder: str


def read_zip(request: dict, objects: ObjectStore) -> bytes:
    """Return the zip that a request contains (``ZipFile``), or names (``S3Bucket``, ``S3Key``)."""
    if "ZipFile" in request:
        return request["ZipFile"]
    if "S3Bucket" not in request or "S3Key" not in request:
        raise make_parameter_error("Please provide a source for function code.")
    object_id = request["S3Bucket"], request["S3Key"], request.get("S3ObjectVersion")
    try:
        return objects.read_bytes(*object_id)
    except ApiError as missing:
        raise make_parameter_error(
            f"Error occurred while GetObject. S3 Error Code: {missing.code}. "
            f"S3 Error Message: {missing.message}"
        ) from None


def unzip_code(data: bytes, root: Path) -> Code:
    """Unzip into a new folder under ``root``; return it with the hash and size of the zip.

    Raises ``InvalidParameterValueException``.
    """
    folder = root / f"code-{secrets.token_hex(6)}"
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if not archive.namelist():
                raise make_parameter_error("Uploaded file must be a non-empty zip")
            if sum(info.file_size for info in archive.infolist()) >= MOST:
                raise make_parameter_error(f"Unzipped size must be smaller than {MOST} bytes")
            archive.extractall(folder)
    except (zipfile.BadZipFile, OSError, NotImplementedError, RuntimeError, EOFError) as wrong:
        shutil.rmtree(folder, ignore_errors=True)
        message = "Could not unzip uploaded file. Please check your file, then try to upload again."
        raise make_parameter_error(message) from wrong
    digest = base64.b64encode(hashlib.sha256(data).digest()).decode()
    return Code(digest, len(data), folder.name)


def make_parameter_error(message: str) -> ApiError:
    return ApiError("InvalidParameterValueException", message)


NAME = re.compile(r"[a-zA-Z0-9-_]{1,64}")
DEFAULTS = {
    "Description": "",
    "Timeout": 3,
    "MemorySize": 128,
    "Architectures": ["x86_64"],
    "EphemeralStorage": {"Size": 512},
    "TracingConfig": {"Mode": "PassThrough"},
    "SnapStart": {"ApplyOn": "None", "OptimizationStatus": "Off"},
}
LIMITS = {"Timeout": (1, 900), "MemorySize": (128, 32768)}
NOT_RUN = {
    "Layers": "layers are not mounted: put their content into the function's zip",
    "FileSystemConfigs": "the emulator has no EFS",
    "DeadLetterConfig": "failed events are not forwarded",
    "ImageConfig": "container images are not run",
    "CapacityProviderConfig": "the emulator has no capacity providers",
    "DurableConfig": "durable executions are not run",
    "CodeSigningConfigArn": "code signing is not checked",
}
"""Mapping of a member of a request to the reason why it is refused, unless it is empty."""
SETTINGS = (
    *("Role", "Handler", "Runtime", "Description", "Timeout", "MemorySize", "Architectures"),
    *("Environment", "VpcConfig", "TracingConfig", "KMSKeyArn", "EphemeralStorage"),
    *("LoggingConfig", "SnapStart"),
)
"""Members of a request that belong to the configuration. MemorySize, EphemeralStorage,
Architectures, VpcConfig, TracingConfig, KMSKeyArn and SnapStart have no effect here."""
RESERVED_NAMES = re.compile(
    r"_HANDLER|_X_AMZN_TRACE_ID|AWS_(DEFAULT_REGION|REGION|EXECUTION_ENV|LAMBDA_.*|ACCESS_KEY"
    r"|ACCESS_KEY_ID|SECRET_ACCESS_KEY|SESSION_TOKEN)|LAMBDA_(TASK_ROOT|RUNTIME_DIR)"
)


def read_configuration(request: dict) -> dict[str, Any]:
    """Return the part of a create or update request that is configuration.

    Raises ``InvalidParameterValueException`` for settings that the emulator does not support or
    that AWS refuses.
    """
    for member, reason in NOT_RUN.items():
        value = request.get(member)
        parts = list(value.values()) if isinstance(value, dict) else [value]
        if value and any(parts):
            raise make_parameter_error(f"{member} is not supported by this emulator: {reason}")
    if "Runtime" in request and not re.fullmatch(r"python3\.\d+", request["Runtime"]):
        message = f"Runtime {request['Runtime']!r} is not supported by this emulator, which has"
        raise make_parameter_error(f"{message} only Python: expected python3.x")
    for member, (minimum, maximum) in LIMITS.items():
        if not minimum <= request.get(member, minimum) <= maximum:
            raise make_parameter_error(
                f"{member} {request[member]}: expected {minimum} to {maximum}"
            )
    _check_environment(request.get("Environment", {}).get("Variables", {}))
    return {
        member: request[member] for member in SETTINGS if request.get(member) not in (None, {}, [])
    }


def _check_environment(variables: dict[str, str]) -> None:
    """Raise ``InvalidParameterValueException`` for reserved or too large variables."""
    reserved_names = [name for name in variables if RESERVED_NAMES.fullmatch(name)]
    if reserved_names:
        raise make_parameter_error(
            "Lambda was unable to configure your environment variables because the environment "
            "variables you have provided contains reserved keys that are currently not supported "
            f"for modification. Reserved keys used in this request: {', '.join(reserved_names)}"
        )
    if sum(len(f"{key}{value}".encode()) for key, value in variables.items()) > 4096:
        raise make_parameter_error(
            "Lambda was unable to configure your environment variables because the environment "
            "variables you have provided exceeded the 4KB limit."
        )


RETRIES = (60.0, 120.0)  # seconds before each retry of an asynchronous event
log = logging.getLogger(__name__)


class Functions:
    """The functions in a state directory. The methods are thread-safe."""

    def __init__(self, root: Path, job_services: JobServices) -> None:
        self._root, self._job_services = root, job_services
        self._runs = job_services.jobs.parent / "invocations"
        self._rest = Rest("lambda")
        self._lock = threading.RLock()
        self._running: set[Invocation] = set()
        self._closing = threading.Event()
        self._operations: dict[str, Callable[[dict], dict]] = {
            "CreateFunction": self.create,
            "GetFunction": self.get,
            "GetFunctionConfiguration": lambda request: self._find(request)["configuration"],
            "ListFunctions": self.list_functions,
            "UpdateFunctionCode": self.update_code,
            "UpdateFunctionConfiguration": self.update_configuration,
            "DeleteFunction": self.delete,
            "Invoke": self.invoke,
        }
        root.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(self._runs, ignore_errors=True)  # left by an emulator that was killed

    def resume(self) -> None:
        """Deliver the events that an earlier emulator had accepted but not delivered."""
        for path in sorted(self._root.glob("*/events/*.json")):
            self._start_delivery(path)

    def close(self) -> None:
        """Stop every invocation; return when none of their processes is left."""
        self._closing.set()
        for invocation in list(self._running):
            invocation.stop()
        while self._running:
            time.sleep(0.01)

    def answer(self, request: Request) -> Response:
        """Return the answer to a request to Lambda."""
        return self._rest.answer(request, self._operations)

    # Operations.

    def create(self, request: dict) -> dict:
        name, code = _parse_function_name(request["FunctionName"]), request["Code"]
        if request.get("PackageType", "Zip") != "Zip" or "ImageUri" in code:
            raise make_parameter_error(
                "PackageType Image is not supported by this emulator: give the handler's code as a "
                "zip, with Runtime and Handler"
            )
        if not request.get("Runtime") or not request.get("Handler"):
            message = "Runtime and Handler are mandatory parameters for functions created with"
            raise make_parameter_error(f"{message} deployment packages.")
        new_settings = read_configuration(request)
        _check_members(request)
        with self._lock:
            if self._build_path(name).exists():
                raise ApiError("ResourceConflictException", f"Function already exist: {name}", 409)
            folder = self._build_path(name).parent
            folder.mkdir(parents=True, exist_ok=True)
            unpacked_files = unzip_code(read_zip(code, self._job_services.objects), folder)
            configuration = {
                "FunctionName": name,
                "FunctionArn": make_arn("lambda", f"function:{name}"),
                **DEFAULTS,
                "LoggingConfig": {"LogFormat": "Text", "LogGroup": f"/aws/lambda/{name}"},
                **new_settings,
                "Version": "$LATEST",
                "PackageType": "Zip",
                "State": "Active",
                "LastUpdateStatus": "Successful",
            }
            record = {"configuration": configuration, "tags": request.get("Tags", {})}
            return self._store(record, unpacked_files)

    def get(self, request: dict) -> dict:
        record = self._find(request)
        tags = {"Tags": record["tags"]} if record["tags"] else {}
        return {
            "Configuration": record["configuration"],
            "Code": {"RepositoryType": "S3"},  # no Location, because the zip itself is not stored
            **tags,
        }

    def list_functions(self, request: dict) -> dict:
        paths = sorted(self._root.glob("*/function.json"))
        configurations = [read_json(path)["configuration"] for path in paths]
        paging_request = {"MaxResults": request.get("MaxItems"), "NextToken": request.get("Marker")}
        answer = make_page(
            "Functions", configurations, {k: v for k, v in paging_request.items() if v}, 50
        )
        if "NextToken" in answer:
            answer["NextMarker"] = answer.pop("NextToken")
        return answer

    def update_code(self, request: dict) -> dict:
        if "ImageUri" in request:
            raise make_parameter_error(
                "ImageUri is not supported by this emulator: give the code as a zip"
            )
        _check_members(request)
        with self._lock:
            record = self._find(request)
            folder = self._build_path(record["configuration"]["FunctionName"]).parent
            unpacked_files = unzip_code(read_zip(request, self._job_services.objects), folder)
            return self._store(record, unpacked_files)

    def update_configuration(self, request: dict) -> dict:
        new_settings = read_configuration(request)
        _check_members(request)
        with self._lock:
            record = self._find(request)
            cleared_names = {k for k in ("Environment", "VpcConfig") if request.get(k) == {}}
            old_settings = {
                k: v for k, v in record["configuration"].items() if k not in cleared_names
            }
            record["configuration"] = old_settings | new_settings
            return self._store(record)

    def delete(self, request: dict) -> dict:
        with self._lock:
            record = self._find(request)
            shutil.rmtree(self._build_path(record["configuration"]["FunctionName"]).parent)
        return {"StatusCode": 204}

    def invoke(self, request: dict) -> dict:
        _check_members(request)
        kind = request.get("InvocationType", "RequestResponse")
        if kind not in ("RequestResponse", "Event", "DryRun"):
            raise make_parameter_error(
                f"InvocationType {kind!r}: expected RequestResponse, Event or DryRun"
            )
        configuration = self._find(request)["configuration"]
        event = _parse_event(request.get("Payload", b""))
        if kind == "DryRun":
            return {"StatusCode": 204}
        if kind == "Event":
            # Written before the response: if the process dies, no event is lost, but its
            # invocation may be repeated.
            events = self._build_path(configuration["FunctionName"]).parent / "events"
            path = events / f"{time.time_ns()}-{uuid.uuid4().hex}.json"
            write_json(path, event)
            self._start_delivery(path)
            return {"StatusCode": 202}
        result = self.call(configuration["FunctionArn"], event)
        answer = {"StatusCode": 200, "ExecutedVersion": "$LATEST", "Payload": result.payload}
        if result.is_failure:
            answer["FunctionError"] = "Unhandled"
        if request.get("LogType") == "Tail":
            answer["LogResult"] = base64.b64encode(result.tail).decode()
        return answer

    # For other packages of the emulator.

    def find_configuration(self, name: str) -> dict:
        """Return GetFunctionConfiguration's response; ``name`` is a name or an ARN.

        Raises ``ResourceNotFoundException``.
        """
        return self._find({"FunctionName": name})["configuration"]

    def call(self, name: str, event: Any) -> Result:
        """Run the function until its end or its time-out. Raises :class:`ApiError`."""
        with self._lock:
            record = self._find({"FunctionName": name})
            configuration = record["configuration"]
            code = self._build_path(configuration["FunctionName"]).parent / record["code"]
            number = uuid.uuid4()
            run = Invocation(
                self._job_services, configuration, code, self._runs / number.hex, str(number)
            )
            if self._closing.is_set():
                raise ApiError("ServiceException", "The emulator is stopping.", 503)
            # Under the lock: while a run is in this set, ``_store`` does not delete its code.
            self._running.add(run)
        try:
            return run.run(event)
        except (EmulatorError, OSError) as failure:
            log.exception("function %s failed in the emulator", name)
            raise ApiError("ServiceException", f"The emulator failed: {failure}", 500) from None
        finally:
            self._running.discard(run)

    # Asynchronous events.

    def _start_delivery(self, path: Path) -> None:
        Thread(target=self._deliver, args=(path,), daemon=True).start()

    def _deliver(self, path: Path) -> None:
        """Call the function for an event, at most three times as AWS does; then drop the event."""
        name, event = path.parents[1].name, read_json(path)
        for wait in (0.0, *RETRIES):
            if self._closing.wait(wait):
                return
            try:
                result = self.call(name, event)
            except ApiError as failure:
                if failure.code == "ResourceNotFoundException":
                    return
                continue
            if self._closing.is_set():
                return
            if not result.is_failure:
                break
        else:
            log.warning("function %s: an event was dropped after three failures", name)
        path.unlink(missing_ok=True)

    # Internal methods.

    def _build_path(self, name: str) -> Path:
        return self._root / name / "function.json"

    def _find(self, request: dict) -> dict:
        """Return the function's record. Raises ``ResourceNotFoundException``."""
        name = _parse_function_name(request["FunctionName"])
        own_qualifier = request["FunctionName"].rpartition("function:")[2].partition(":")[2]
        qualifier = request.get("Qualifier") or own_qualifier
        if qualifier not in ("", "$LATEST") or not self._build_path(name).exists():
            arn = make_arn("lambda", f"function:{name}") + (qualifier and f":{qualifier}")
            raise ApiError("ResourceNotFoundException", f"Function not found: {arn}", 404)
        return read_json(self._build_path(name))

    def _store(self, record: dict, code: Code | None = None) -> dict:
        """Store the function's record under a new revision id; return its configuration.

        Delete those of its code folders that neither the record nor a running invocation uses.
        """
        configuration = record["configuration"]
        configuration["LastModified"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]
        configuration["LastModified"] += "+0000"
        configuration["RevisionId"] = str(uuid.uuid4())
        if code:
            configuration |= {"CodeSha256": code.sha256, "CodeSize": code.size}
            record["code"] = code.folder
        write_json(self._build_path(configuration["FunctionName"]), record)
        folder = self._build_path(configuration["FunctionName"]).parent
        used = {run.code for run in self._running} | {folder / record["code"]}
        for old in folder.glob("code-*"):
            if old not in used:
                shutil.rmtree(old, ignore_errors=True)
        return configuration


def _parse_function_name(reference: str) -> str:
    """Return ``name`` from ``name``, ``name:qualifier``, or a partial or complete ARN."""
    _, arn, rest = reference.rpartition("function:")
    name = (rest if arn else reference).partition(":")[0]
    if not NAME.fullmatch(name):
        raise make_parameter_error(
            f"FunctionName {reference!r}: expected at most 64 letters, digits, - and _"
        )
    return name


_NOT_KEPT = {
    "Publish": "versions are not stored by this emulator, which has only $LATEST",
    "DryRun": "this emulator checks a function's code only when it stores it: leave it out",
    "RevisionId": "revisions are not compared by this emulator: leave it out",
    "ClientContext": "it is not passed to the handler here: put it into the event",
}


def _check_members(request: dict) -> None:
    for member, reason in _NOT_KEPT.items():
        if request.get(member):
            raise make_parameter_error(f"{member}: {reason}")


def _parse_event(payload: bytes) -> Any:
    """Return the event in the payload of a request. Raises ApiError if it is not valid."""
    if len(payload) > LARGEST:
        message = f"Request must be smaller than {LARGEST} bytes for the InvokeFunction operation"
        raise ApiError("RequestTooLargeException", message, 413)
    try:
        return json.loads(payload or b"{}")
    except ValueError as wrong:
        message = f"Could not parse request body into json: {wrong}"
        raise ApiError("InvalidRequestContentException", message) from None
