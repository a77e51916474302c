"""ListObjects, ListObjectsV2: keys rolled up by a delimiter, one page at a time."""

import base64
import binascii
from dataclasses import dataclass, field
from urllib.parse import quote

from werkzeug import Request, Response

from trainyard.emulator.api import ApiError
from trainyard.emulator.objects import ObjectInfo, ObjectStore, successor
from trainyard.emulator.s3 import xml
from trainyard.emulator.s3.conditions import number

LIMIT = 1000  # most entries S3 puts on a page


@dataclass(slots=True)
class Page:
    contents: list[ObjectInfo] = field(default_factory=list)
    prefixes: list[str] = field(default_factory=list)
    last: str = ""
    """The last entry of this page: the next page starts after it."""
    truncated: bool = False

    def __len__(self) -> int:
        return len(self.contents) + len(self.prefixes)


def read_page(
    store: ObjectStore, bucket: str, prefix: str, delimiter: str, after: str, limit: int
) -> Page:
    """Entries (keys, or common prefixes once each) above ``after`` in UTF-8 byte order."""
    page, floor = Page(), after.encode()
    start = floor + b"\0" if after else b""
    while limit:
        rolled = None
        for info in store.list(bucket, prefix, start=start):
            rolled = _roll_up(info.key, prefix, delimiter)
            entry = rolled or info.key
            if entry.encode() <= floor:  # the rest of a prefix that an earlier page reported
                break
            if len(page) == limit:
                page.truncated = True
                return page
            page.last = entry
            if rolled:
                page.prefixes.append(rolled)
                break
            page.contents.append(info)
        if rolled is None:
            return page
        start = successor(rolled.encode())  # skip the keys under it without reading them
    return page


def objects_v2(store: ObjectStore, bucket: str, request: Request) -> Response:
    args = request.args
    token = args.get("continuation-token")
    after = _untoken(token) if token else args.get("start-after", "")
    limit, prefix, delimiter = _limit(args.get("max-keys")), *_where(request)
    page = read_page(store, bucket, prefix, delimiter, after, limit)
    owner = args.get("fetch-owner") == "true"
    tree: list = [*_common(request, bucket, limit, page), ("KeyCount", len(page))]
    if token:
        tree.append(("ContinuationToken", token))
    if "start-after" in args:
        tree.append(("StartAfter", _encode(request, args["start-after"])))
    if page.truncated:
        tree.append(("NextContinuationToken", _token(page.last)))
    return xml.document("ListBucketResult", tree + _entries(request, page, owner=owner))


def objects_v1(store: ObjectStore, bucket: str, request: Request) -> Response:
    marker = request.args.get("marker", "")
    limit, prefix, delimiter = _limit(request.args.get("max-keys")), *_where(request)
    page = read_page(store, bucket, prefix, delimiter, marker, limit)
    tree: list = [*_common(request, bucket, limit, page), ("Marker", _encode(request, marker))]
    if page.truncated and delimiter:  # without a delimiter the client takes the last key
        tree.append(("NextMarker", _encode(request, page.last)))
    return xml.document("ListBucketResult", tree + _entries(request, page, owner=True))


def _roll_up(key: str, prefix: str, delimiter: str) -> str | None:
    at = key.find(delimiter, len(prefix)) if delimiter else -1
    return key[: at + len(delimiter)] if at >= 0 else None


def _common(request: Request, bucket: str, limit: int, page: Page) -> list:
    prefix, delimiter = _where(request)
    tree: list = [("Name", bucket), ("Prefix", _encode(request, prefix)), ("MaxKeys", limit)]
    if delimiter:
        tree.append(("Delimiter", _encode(request, delimiter)))
    if request.args.get("encoding-type") == "url":
        tree.append(("EncodingType", "url"))
    return [*tree, ("IsTruncated", page.truncated)]


def _entries(request: Request, page: Page, *, owner: bool) -> list:
    tree: list = []
    for info in page.contents:
        entry: list = [
            ("Key", _encode(request, info.key)),
            ("LastModified", xml.timestamp(info.last_modified)),
            ("ETag", f'"{info.etag}"'),
            ("Size", info.size),
            ("StorageClass", info.headers.get("x-amz-storage-class", "STANDARD")),
        ]
        tree.append(("Contents", entry + [("Owner", [("ID", "emulator")])] * owner))
    for prefix in page.prefixes:
        tree.append(("CommonPrefixes", [("Prefix", _encode(request, prefix))]))
    return tree


def _where(request: Request) -> tuple[str, str]:
    return request.args.get("prefix", ""), request.args.get("delimiter", "")


def _encode(request: Request, value: str) -> str:
    """XML 1.0 cannot hold every key: SDKs ask for ``encoding-type=url`` and decode."""
    return quote(value, safe="/") if request.args.get("encoding-type") == "url" else value


def _limit(asked: str | None) -> int:
    return min(number(asked, "max-keys", LIMIT), LIMIT)


def _token(last: str) -> str:
    return base64.urlsafe_b64encode(last.encode()).decode()


def _untoken(token: str) -> str:
    try:
        return base64.b64decode(token, altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as wrong:
        message = "The continuation token provided is incorrect"
        raise ApiError("InvalidArgument", message) from wrong
