"""Routes one S3 request to what answers it."""

import logging
import re
from urllib.parse import unquote_to_bytes

from werkzeug import Request, Response

from trainyard.emulator.api import ACCOUNT, ApiError
from trainyard.emulator.objects import ObjectStore
from trainyard.emulator.s3 import xml
from trainyard.emulator.s3.buckets import READABLE, Buckets
from trainyard.emulator.s3.multipart import Uploads
from trainyard.emulator.s3.objects import Objects

log = logging.getLogger(__name__)

# bucket.localhost and bucket.s3.localhost; an address or plain localhost means path style
_VIRTUAL_HOST = re.compile(r"(?P<bucket>.+?)(\.s3)?\.localhost(:\d+)?")

_SUBRESOURCES = frozenset(
    "accelerate acl analytics attributes cors delete encryption intelligent-tiering inventory "
    "legal-hold lifecycle location logging metrics notification object-lock ownershipControls "
    "policy policyStatus publicAccessBlock replication requestPayment restore retention select "
    "tagging torrent uploads versioning versions website".split()
)


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
        sub = next((name for name in request.args if name in _SUBRESOURCES), None)
        if not bucket:
            if request.method == "GET":
                return self._buckets.all()
            raise _unimplemented(request, sub)
        return (
            self._object(request, bucket, key, sub) if key else self._bucket(request, bucket, sub)
        )

    def _bucket(self, request: Request, bucket: str, sub: str | None) -> Response:
        match request.method, sub:
            case "GET", _ if sub in READABLE:
                return self._buckets.get(request, bucket, sub)
            case "HEAD", None:
                return self._buckets.head(bucket)
            case "PUT", None:
                return self._buckets.create(bucket)
            case "DELETE", None:
                return self._buckets.delete(bucket)
            case "POST", "delete":
                return self._buckets.delete_objects(request, bucket)
        raise _unimplemented(request, sub)

    def _object(self, request: Request, bucket: str, key: str, sub: str | None) -> Response:
        objects = self._objects
        match request.method, sub, "uploadId" in request.args:
            case "GET", None, False:
                return objects.get(request, bucket, key)
            case "HEAD", None, False:
                return objects.head(request, bucket, key)
            case "PUT", None, False:
                return objects.put(request, bucket, key)
            case "DELETE", None, False:
                return objects.delete(request, bucket, key)
            case "GET", "tagging", False:
                return objects.tags(bucket, key)
            case "POST", "uploads", False:
                return objects.start_upload(request, bucket, key)
            case "PUT", None, True:
                return objects.put_part(request, bucket, key)
            case "POST", None, True:
                return objects.complete_upload(request, bucket, key)
            case "DELETE", None, True:
                return objects.abort_upload(request, bucket, key)
            case "GET", None, True:
                return objects.list_parts(request, bucket, key)
        raise _unimplemented(request, sub)


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


def _unimplemented(request: Request, sub: str | None) -> ApiError:
    what = f"{request.method} ?{sub}" if sub else request.method
    message = f"The emulator's S3 does not implement {what} on {request.path}."
    return ApiError("NotImplemented", message, 501)  # S3's own status; botocore does not retry it
