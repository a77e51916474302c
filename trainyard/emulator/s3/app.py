"""Routes one S3 request to what answers it."""

import logging
import re
from urllib.parse import unquote_to_bytes

from werkzeug import Request, Response

from trainyard.emulator.api import ACCOUNT, ApiError
from trainyard.emulator.objects import ObjectStore
from trainyard.emulator.s3 import xml
from trainyard.emulator.s3.buckets import Buckets
from trainyard.emulator.s3.model import Level
from trainyard.emulator.s3.multipart import Uploads
from trainyard.emulator.s3.objects import Objects
from trainyard.emulator.s3.routes import find

log = logging.getLogger(__name__)

# bucket.localhost and bucket.s3.localhost; an address or plain localhost means path style
_VIRTUAL_HOST = re.compile(r"(?P<bucket>.+?)(\.s3)?\.localhost(:\d+)?")


class S3:
    """Answers S3's REST API from an :class:`ObjectStore`; never raises :class:`ApiError`."""

    def __init__(self, store: ObjectStore) -> None:
        uploads = Uploads(store)
        self._objects = Objects(store, uploads)
        self._buckets = Buckets(store, uploads)

    def answer(self, request: Request) -> Response:
        try:
            bucket, key = _target(request)
            _check_owner(request)
            return self._route(request, bucket, key)
        except ApiError as failure:
            log.debug("s3: %s %s: %s", request.method, request.path, failure)
            return xml.error(failure, request.path)

    def _route(self, request: Request, bucket: str, key: str) -> Response:
        level: Level = "object" if key else "bucket" if bucket else "service"
        answer = find(level, request)
        return answer(self._objects if key else self._buckets, request, bucket, key)


def virtual_bucket(request: Request) -> str:
    """The bucket that the host's name holds; empty in path style."""
    found = _VIRTUAL_HOST.fullmatch(request.headers.get("Host", ""))
    return found["bucket"] if found else ""


def _target(request: Request) -> tuple[str, str]:
    """(bucket, key) from the raw path: WSGI's PATH_INFO has lost ``%2F`` and damaged UTF-8."""
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


def _check_owner(request: Request) -> None:
    owner = request.headers.get("x-amz-expected-bucket-owner")
    if owner not in (None, ACCOUNT):
        raise ApiError("AccessDenied", f"Every bucket here belongs to {ACCOUNT}, not {owner}.", 403)
