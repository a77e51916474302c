"""A function's code: the zip that a request brings, checked and unzipped."""

import base64
import hashlib
import io
import secrets
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path

from trainyard.emulator.api import ApiError
from trainyard.emulator.objects import ObjectStore

MOST = 262144000  # bytes of all files, unzipped


@dataclass(frozen=True, slots=True)
class Code:
    """``folder`` is the name of the folder that it is unzipped in."""

    sha256: str
    size: int
    folder: str


def read_zip(request: dict, objects: ObjectStore) -> bytes:
    """The zip of a request that has ``ZipFile``, or ``S3Bucket`` and ``S3Key``."""
    if "ZipFile" in request:
        return request["ZipFile"]
    if "S3Bucket" not in request or "S3Key" not in request:
        raise invalid("Please provide a source for function code.")
    named = request["S3Bucket"], request["S3Key"], request.get("S3ObjectVersion")
    try:
        return objects.path(*named).read_bytes()
    except ApiError as missing:
        raise invalid(
            f"Error occurred while GetObject. S3 Error Code: {missing.code}. "
            f"S3 Error Message: {missing.message}"
        ) from None


def unzip(data: bytes, root: Path) -> Code:
    """Unzips into a new folder under ``root``. Raises ``InvalidParameterValueException``."""
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
        raise invalid(f"{message} ({wrong})") from None
    digest = base64.b64encode(hashlib.sha256(data).digest()).decode()
    return Code(digest, len(data), folder.name)


def invalid(message: str) -> ApiError:
    return ApiError("InvalidParameterValueException", message)
