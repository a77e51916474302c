"""Routes an S3 request to the method that answers it."""

import logging
import re
import uuid
from urllib.parse import unquote_to_bytes

from werkzeug import Request

from trainyard.emulator.api import ApiError, S3Error
from trainyard.emulator.storage import s3_xml
from trainyard.emulator.storage.bucket_settings import Attributes, Settings, Tagging
from trainyard.emulator.storage.buckets import Buckets
from trainyard.emulator.storage.multipart import Uploads
from trainyard.emulator.storage.object_requests import Objects
from trainyard.emulator.storage.object_store import ObjectStore
from trainyard.emulator.storage.operation_routes import find
from trainyard.emulator.storage.part_requests import Parts
from trainyard.emulator.storage.s3_operations import Level
from trainyard.emulator.storage.s3_xml import Response
from trainyard.emulator.storage.versions import Versions

log = logging.getLogger(__name__)

# bucket.localhost and bucket.s3.localhost; an address or plain localhost means path style
_VIRTUAL_HOST = re.compile(r"(?P<bucket>.+?)(\.s3)?\.localhost(:\d+)?")


class S3:
    """Answers S3's REST API from an :class:`ObjectStore`; never raises :class:`ApiError`."""

    def __init__(self, store: ObjectStore) -> None:
        self._store, uploads = store, Uploads(store)
        rooms = (
            Objects(store),
            Parts(store, uploads),
            Buckets(store, uploads),
            Versions(store),
            Tagging(store),
            Attributes(store),
            Settings(store),
        )
        self._rooms: dict[str, object] = {type(room).__name__: room for room in rooms}

    def answer(self, request: Request) -> Response:
        request_id = uuid.uuid4().hex
        try:
            bucket, key = target(request)
            _unhoist(request)
            self._store.need_owner(bucket, request.headers.get("x-amz-expected-bucket-owner"))
            response = self._route(request, bucket, key)
        except ApiError as failure:
            log.debug("s3: %s %s: %s", request.method, request.path, failure)
            if isinstance(failure, S3Error) and "Method" in failure.fields:
                failure.fields["Method"] = request.method
            response = s3_xml.error(failure, request.path, request_id)
        response.headers.extend({"x-amz-request-id": request_id, "x-amzn-RequestId": request_id})
        return response

    def preflight(self, request: Request) -> Response:
        """Refuse a CORS preflight: pages of other origins are not served."""
        message = "Insufficient information. Origin request header needed."
        return s3_xml.error(ApiError("BadRequest", message), request.path)

    def _route(self, request: Request, bucket: str, key: str) -> Response:
        level: Level = "object" if key else "bucket" if bucket else "service"
        answer = find(level, request)
        room = self._rooms[answer.__qualname__.partition(".")[0]]
        return answer(room, request, bucket, key)


def virtual_bucket(request: Request) -> str:
    """Return the bucket in the host's name; empty in path style."""
    match = _VIRTUAL_HOST.fullmatch(request.headers.get("Host", ""))
    return match["bucket"] if match else ""


def target(request: Request) -> tuple[str, str]:
    """Return (bucket, key) from the raw path: WSGI's PATH_INFO loses ``%2F`` and damages UTF-8."""
    raw = request.environ["RAW_URI"].partition("?")[0]
    raw = re.sub(r"^https?://[^/]*", "", raw)
    try:
        path = unquote_to_bytes(raw).decode().removeprefix("/")
    except UnicodeDecodeError as wrong:
        raise ApiError("InvalidURI", "Couldn't parse the specified URI: not UTF-8.") from wrong
    if bucket := virtual_bucket(request):
        return bucket, path
    bucket, _, key = path.partition("/")
    return bucket, key


def _unhoist(request: Request) -> None:
    """Restore headers that a presigned URL has in its query."""
    for name, value in request.args.items():
        if name.startswith("x-amz-"):
            request.environ.setdefault(f"HTTP_{name.upper().replace('-', '_')}", value)
