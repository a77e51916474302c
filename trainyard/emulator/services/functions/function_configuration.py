"""The configuration of a function; settings that cannot run here are refused by name."""

import base64
import hashlib
import io
import re
import secrets
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainyard.emulator.api import ApiError
from trainyard.emulator.storage.object_store import ObjectStore

MOST = 262144000  # bytes of all files, unzipped


@dataclass(frozen=True, slots=True)
class Code:
    """The unzipped code of a function. ``folder``: name of its folder."""

    sha256: str
    size: int
    folder: str


def read_zip(request: dict, objects: ObjectStore) -> bytes:
    """Return the zip of a request that has ``ZipFile``, or ``S3Bucket`` and ``S3Key``."""
    if "ZipFile" in request:
        return request["ZipFile"]
    if "S3Bucket" not in request or "S3Key" not in request:
        raise invalid("Please provide a source for function code.")
    place = request["S3Bucket"], request["S3Key"], request.get("S3ObjectVersion")
    try:
        return objects.read_bytes(*place)
    except ApiError as missing:
        raise invalid(
            f"Error occurred while GetObject. S3 Error Code: {missing.code}. "
            f"S3 Error Message: {missing.message}"
        ) from None


def unzip(data: bytes, root: Path) -> Code:
    """Unzip into a new folder under ``root``. Raises ``InvalidParameterValueException``."""
    folder = root / f"code-{secrets.token_hex(6)}"
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if not archive.namelist():
                raise invalid("Uploaded file must be a non-empty zip")
            if sum(info.file_size for info in archive.infolist()) >= MOST:
                raise invalid(f"Unzipped size must be smaller than {MOST} bytes")
            archive.extractall(folder)
    except (zipfile.BadZipFile, OSError, NotImplementedError, RuntimeError, EOFError) as wrong:
        shutil.rmtree(folder, ignore_errors=True)
        message = "Could not unzip uploaded file. Please check your file, then try to upload again."
        raise invalid(message) from wrong
    digest = base64.b64encode(hashlib.sha256(data).digest()).decode()
    return Code(digest, len(data), folder.name)


def invalid(message: str) -> ApiError:
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
"""Member of a request → why it is refused, unless it is empty."""
SETTINGS = (
    *("Role", "Handler", "Runtime", "Description", "Timeout", "MemorySize", "Architectures"),
    *("Environment", "VpcConfig", "TracingConfig", "KMSKeyArn", "EphemeralStorage"),
    *("LoggingConfig", "SnapStart"),
)
"""Members of a request that belong to the configuration. MemorySize, EphemeralStorage,
Architectures, VpcConfig, TracingConfig, KMSKeyArn and SnapStart have no effect here."""
_ROLE = r"arn:(aws[a-zA-Z-]*)?:iam::\d{12}:role/?[a-zA-Z_0-9+=,.@\-_/]+"
RESERVED_NAMES = re.compile(
    r"_HANDLER|_X_AMZN_TRACE_ID|AWS_(DEFAULT_REGION|REGION|EXECUTION_ENV|LAMBDA_.*|ACCESS_KEY"
    r"|ACCESS_KEY_ID|SECRET_ACCESS_KEY|SESSION_TOKEN)|LAMBDA_(TASK_ROOT|RUNTIME_DIR)"
)


def read_configuration(request: dict) -> dict[str, Any]:
    """Return the part of a create or update request that is configuration.

    Raises ``InvalidParameterValueException`` for what the emulator cannot run, or AWS refuses.
    """
    for member, reason in NOT_RUN.items():
        if request.get(member) and any(_values(request[member])):
            raise invalid(f"{member} is not run by this emulator: {reason}")
    if "Role" in request and not re.fullmatch(_ROLE, request["Role"]):
        message = (
            f"1 validation error detected: Value '{request['Role']}' at 'role' failed to satisfy "
            f"constraint: Member must satisfy regular expression pattern: {_ROLE}"
        )
        raise ApiError("ValidationException", message)
    if "Runtime" in request and not re.fullmatch(r"python3\.\d+", request["Runtime"]):
        message = f"Runtime {request['Runtime']!r} is not run by this emulator, which has"
        raise invalid(f"{message} only Python: expected python3.x")
    for member, (least, most) in LIMITS.items():
        if not least <= request.get(member, least) <= most:
            raise invalid(f"{member} {request[member]}: expected {least} to {most}")
    _check_environment(request.get("Environment", {}).get("Variables", {}))
    return {
        member: request[member] for member in SETTINGS if request.get(member) not in (None, {}, [])
    }


def _values(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else [value]


def _check_environment(variables: dict[str, str]) -> None:
    reserved_names = [name for name in variables if RESERVED_NAMES.fullmatch(name)]
    if reserved_names:
        raise invalid(
            "Lambda was unable to configure your environment variables because the environment "
            "variables you have provided contains reserved keys that are currently not supported "
            f"for modification. Reserved keys used in this request: {', '.join(reserved_names)}"
        )
    if sum(len(f"{key}{value}".encode()) for key, value in variables.items()) > 4096:
        raise invalid(
            "Lambda was unable to configure your environment variables because the environment "
            "variables you have provided exceeded the 4KB limit."
        )
