"""ListObjects, ListObjectsV2: keys rolled up by a delimiter, one page at a time."""

import base64
import re
from dataclasses import dataclass, field
from urllib.parse import quote

from werkzeug import Request

from trainyard.emulator.request_scope import S3Error
from trainyard.emulator.s3 import operation_routes
from trainyard.emulator.s3.multipart import Upload
from trainyard.emulator.s3.object_requests import STORAGE, number, sums
from trainyard.emulator.s3.object_store import ObjectInfo, ObjectStore, successor
from trainyard.emulator.s3.operation_routes import Response
from trainyard.emulator.s3.upload_body import PREFIX, TYPE

LIMIT = 1000  # largest page, in entries (S3's limit)
REGIONS = re.compile(r"EU|[a-z]{2}(-[a-z]+)+-\d")


@dataclass(slots=True)
class Page:
    contents: list[ObjectInfo] = field(default_factory=list)
    prefixes: list[str] = field(default_factory=list)
    last: str = ""
    """The last entry of this page: the next page starts after it."""
    is_truncated: bool = False

    def __len__(self) -> int:
        return len(self.contents) + len(self.prefixes)


def read_page(
    store: ObjectStore, bucket: str, prefix: str, delimiter: str, after: str, limit: int
) -> Page:
    """Return the page of entries (keys, or common prefixes once each) above ``after`` in UTF-8 byte
    order.
    """
    page, floor = Page(), after.encode()
    # The least key after the marker, which is not listed again.
    start = floor + b"\0" if after else b""
    while limit:
        common_prefix = None
        for info in store.list(bucket, prefix, start=start):
            common_prefix = roll_up(info.key, prefix, delimiter)
            entry = common_prefix or info.key
            if entry.encode() <= floor:  # the rest of a prefix that an earlier page reported
                break
            if len(page) == limit:
                page.is_truncated = True
                return page
            page.last = entry
            if common_prefix:
                page.prefixes.append(common_prefix)
                break
            page.contents.append(info)
        if common_prefix is None:
            return page
        start = successor(common_prefix.encode())  # skip the keys under it without reading them
    return page


def objects_v2(store: ObjectStore, bucket: str, request: Request) -> Response:
    args = request.args
    page_token = args.get("continuation-token")
    after = untoken(page_token) if page_token is not None else args.get("start-after", "")
    limit, prefix, delimiter = _limit(args.get("max-keys")), *_read_prefixes(request)
    page = read_page(store, bucket, prefix, delimiter, after, limit)
    owner = args.get("fetch-owner") == "true"
    tree: list = [*_common(request, bucket, limit, page), ("KeyCount", len(page))]
    if page_token is not None:
        tree.append(("ContinuationToken", page_token))
    if "start-after" in args:
        tree.append(("StartAfter", encode(request, args["start-after"])))
    if page.is_truncated:
        tree.append(("NextContinuationToken", token(page.last)))
    return operation_routes.document(
        "ListBucketResult", tree + _entries(request, page, owner=owner)
    )


def objects_v1(store: ObjectStore, bucket: str, request: Request) -> Response:
    marker = request.args.get("marker", "")
    limit, prefix, delimiter = _limit(request.args.get("max-keys")), *_read_prefixes(request)
    page = read_page(store, bucket, prefix, delimiter, marker, limit)
    tree: list = [*_common(request, bucket, limit, page), ("Marker", encode(request, marker))]
    if not operation_routes.ILLEGAL.search(prefix):  # botocore decodes it only in version 2
        tree[1] = ("Prefix", prefix)
    if page.is_truncated and delimiter:  # without a delimiter the client takes the last key
        tree.append(("NextMarker", encode(request, page.last)))
    return operation_routes.document("ListBucketResult", tree + _entries(request, page, owner=True))


def uploads(pending_uploads: list[Upload], bucket: str, request: Request) -> Response:
    """List multipart uploads in progress, which are sorted by key and then by start."""
    args, (prefix, delimiter) = request.args, _read_prefixes(request)
    after, upload_id = args.get("key-marker", ""), args.get("upload-id-marker", "")
    limit = min(number(args.get("max-uploads"), "max-uploads", LIMIT), LIMIT)
    if upload_id and after:
        ids = [upload.id for upload in pending_uploads]
        pending_uploads = pending_uploads[ids.index(upload_id) + 1 :] if upload_id in ids else []
    elif after:
        pending_uploads = [
            upload for upload in pending_uploads if upload.key.encode() > after.encode()
        ]
    entries: dict[str, Upload | None] = {}  # by what is listed, None for a common prefix
    for upload in pending_uploads:
        if upload.key.startswith(prefix):
            common_prefix = roll_up(upload.key, prefix, delimiter)
            if not common_prefix or common_prefix > after:
                entries[common_prefix or upload.id] = None if common_prefix else upload
    page_entries = list(entries.items())[:limit]
    tree: list = [("Bucket", bucket), ("KeyMarker", encode(request, after))]
    tree += [("UploadIdMarker", upload_id), ("Prefix", encode(request, prefix))]
    if len(entries) > len(page_entries) and page_entries:
        name, last = page_entries[-1]
        tree.append(("NextKeyMarker", encode(request, last.key if last else name)))
        tree.append(("NextUploadIdMarker", last.id if last else ""))
    tree += [("Delimiter", encode(request, delimiter))] if delimiter else []
    tree += [("EncodingType", "url")] if args.get("encoding-type") == "url" else []
    tree += [
        ("MaxUploads", limit),
        ("IsTruncated", bool(limit) and len(entries) > len(page_entries)),
    ]
    for name, entry in page_entries:
        prefixes = ("CommonPrefixes", [("Prefix", encode(request, name))])
        tree.append(("Upload", _upload(request, entry)) if entry else prefixes)
    return operation_routes.document("ListMultipartUploadsResult", tree)


def _upload(request: Request, upload: Upload) -> list:
    entry: list = [("Key", encode(request, upload.key)), ("UploadId", upload.id)]
    entry += [("Initiator", operation_routes.OWNER), ("Owner", operation_routes.OWNER)]
    entry.append(("StorageClass", upload.headers.get(STORAGE, "STANDARD")))
    if upload.algorithm:
        entry.append(("ChecksumAlgorithm", upload.algorithm.upper()))
        entry.append(("ChecksumType", upload.kind))
    return [*entry, ("Initiated", operation_routes.timestamp(upload.start_time))]


def roll_up(key: str, prefix: str, delimiter: str) -> str | None:
    position = key.find(delimiter, len(prefix)) if delimiter else -1
    return key[: position + len(delimiter)] if position >= 0 else None


def _common(request: Request, bucket: str, limit: int, page: Page) -> list:
    prefix, delimiter = _read_prefixes(request)
    tree: list = [("Name", bucket), ("Prefix", encode(request, prefix)), ("MaxKeys", limit)]
    if delimiter:
        tree.append(("Delimiter", encode(request, delimiter)))
    if request.args.get("encoding-type") == "url":
        tree.append(("EncodingType", "url"))
    return [*tree, ("IsTruncated", page.is_truncated)]


def _entries(request: Request, page: Page, *, owner: bool) -> list:
    tree: list = []
    for info in page.contents:
        entry: list = [
            ("Key", encode(request, info.key)),
            ("LastModified", operation_routes.timestamp(info.last_modified)),
            ("ETag", f'"{info.etag}"'),
            ("Size", info.size),
            *of_checksums(info),
            ("StorageClass", info.headers.get(STORAGE, "STANDARD")),
        ]
        tree.append(("Contents", entry + [("Owner", operation_routes.OWNER)] * owner))
    for prefix in page.prefixes:
        tree.append(("CommonPrefixes", [("Prefix", encode(request, prefix))]))
    return tree


def _read_prefixes(request: Request) -> tuple[str, str]:
    return request.args.get("prefix", ""), request.args.get("delimiter", "")


def encode(request: Request, value: str) -> str:
    """Return the key, URL-encoded if the client asks for it: XML 1.0 cannot hold every key.

    Raises ``InvalidArgument`` for another encoding.
    """
    kind = request.args.get("encoding-type")
    if kind not in (None, "url"):
        fields = {"ArgumentName": "encoding-type", "ArgumentValue": kind}
        message = "Invalid Encoding Method specified in Request"
        raise S3Error("InvalidArgument", message, fields=fields)
    return quote(value, safe="/") if kind else value


def _limit(text: str | None) -> int:
    return min(number(text, "max-keys", LIMIT), LIMIT)


def of_checksums(info: ObjectInfo) -> list[tuple[str, str]]:
    """Return the object's kinds of checksum, as elements of a listing."""
    checksums = sums(info)
    kinds = [("ChecksumAlgorithm", k.removeprefix(PREFIX).upper()) for k in checksums if k != TYPE]
    return [*kinds, ("ChecksumType", checksums.get(TYPE, "FULL_OBJECT"))] if kinds else []


def token(last: str) -> str:
    return base64.urlsafe_b64encode(last.encode()).decode()


def untoken(token: str | None) -> str:
    """Return the last key of a page; empty without a token. Raises ``InvalidArgument``."""
    try:
        # b64decode would take an empty token for the first page; S3 refuses it.
        if token == "":
            raise ValueError("an empty token")
        return base64.b64decode(token or "", altchars=b"-_", validate=True).decode()
    except (ValueError, UnicodeDecodeError) as wrong:
        message = "The continuation token provided is incorrect"
        fields = {"ArgumentName": "continuation-token", "ArgumentValue": token or ""}
        raise S3Error("InvalidArgument", message, fields=fields) from wrong
