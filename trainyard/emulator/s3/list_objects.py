"""List objects and uploads one page at a time; a delimiter groups keys by common prefixes."""

import base64
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from urllib.parse import quote

from werkzeug import Request

from trainyard.emulator.request_scope import S3Error
from trainyard.emulator.s3 import operation_routes
from trainyard.emulator.s3.object_requests import STORAGE, build_checksum_headers, parse_number
from trainyard.emulator.s3.object_store import ObjectInfo, ObjectStore, compute_prefix_end
from trainyard.emulator.s3.operation_routes import Response
from trainyard.emulator.s3.upload_body import PREFIX, TYPE

LIMIT = 1000  # maximum entries of a page (S3's limit)
REGIONS = re.compile(r"EU|[a-z]{2}(-[a-z]+)+-\d")


@dataclass(slots=True)
class Page:
    """One page of a listing of objects."""

    contents: list[ObjectInfo] = field(default_factory=list)
    prefixes: list[str] = field(default_factory=list)
    last: str = ""
    """The last entry of this page: the next page starts after it."""
    version: str = ""
    """Version of the last entry; empty for a prefix."""
    is_truncated: bool = False

    def __len__(self) -> int:
        return len(self.contents) + len(self.prefixes)


def read_page(
    infos: Callable[[bytes], Iterable[ObjectInfo]], request: Request, after: str, limit: int
) -> Page:
    """Return one page of entries after the entry ``after``: keys, and each common prefix once.

    ``infos`` is a function that iterates over objects or versions in UTF-8 byte order, starting at
    the given key, or after ``after`` if that key is empty.
    """
    prefix, delimiter = read_prefix_and_delimiter(request)
    page, start = Page(), b""
    while limit:
        common_prefix = None
        for info in infos(start):
            common_prefix = find_common_prefix(info.key, prefix, delimiter)
            # The rest of a prefix that an earlier page reported.
            if common_prefix and common_prefix.encode() <= after.encode():
                break
            if len(page) == limit:
                page.is_truncated = True
                return page
            page.last = common_prefix or info.key
            page.version = "" if common_prefix else info.version
            if common_prefix:
                page.prefixes.append(common_prefix)
                break
            page.contents.append(info)
        if common_prefix is None:
            return page
        start = compute_prefix_end(
            common_prefix.encode()
        )  # skip the keys under it without reading them
    return page


def _read_objects(
    store: ObjectStore, bucket: str, request: Request, after: str, limit: int
) -> Page:
    first = after.encode() + b"\0" if after else b""  # the marker itself is not listed again
    prefix = read_prefix_and_delimiter(request)[0]
    return read_page(
        lambda start: store.list(bucket, prefix, start=start or first), request, after, limit
    )


def answer_list_v2(store: ObjectStore, bucket: str, request: Request) -> Response:
    """Answer ListObjectsV2."""
    args = request.args
    page_token = args.get("continuation-token")
    after = decode_token(page_token) if page_token is not None else args.get("start-after", "")
    limit = _parse_max_keys(args.get("max-keys"))
    page = _read_objects(store, bucket, request, after, limit)
    owner = args.get("fetch-owner") == "true"
    tree: list = [*_build_common_elements(request, bucket, limit, page), ("KeyCount", len(page))]
    if page_token is not None:
        tree.append(("ContinuationToken", page_token))
    if "start-after" in args:
        tree.append(("StartAfter", encode_key(request, args["start-after"])))
    if page.is_truncated:
        tree.append(("NextContinuationToken", encode_token(page.last)))
    return operation_routes.make_xml_response(
        "ListBucketResult", tree + _build_entries(request, page, owner=owner)
    )


def answer_list_v1(store: ObjectStore, bucket: str, request: Request) -> Response:
    """Answer ListObjects, the first version."""
    marker = request.args.get("marker", "")
    limit, (prefix, delimiter) = (
        _parse_max_keys(request.args.get("max-keys")),
        read_prefix_and_delimiter(request),
    )
    page = _read_objects(store, bucket, request, marker, limit)
    tree: list = [
        *_build_common_elements(request, bucket, limit, page),
        ("Marker", encode_key(request, marker)),
    ]
    if not operation_routes.ILLEGAL.search(prefix):  # botocore decodes it only in version 2
        tree[1] = ("Prefix", prefix)
    if page.is_truncated and delimiter:  # without a delimiter, clients continue at the last key
        tree.append(("NextMarker", encode_key(request, page.last)))
    return operation_routes.make_xml_response(
        "ListBucketResult", tree + _build_entries(request, page, owner=True)
    )


def find_common_prefix(key: str, prefix: str, delimiter: str) -> str | None:
    """Return the common prefix of a key: up to the first delimiter after ``prefix``, or None."""
    position = key.find(delimiter, len(prefix)) if delimiter else -1
    return key[: position + len(delimiter)] if position >= 0 else None


def _build_common_elements(request: Request, bucket: str, limit: int, page: Page) -> list:
    prefix, delimiter = read_prefix_and_delimiter(request)
    tree: list = [("Name", bucket), ("Prefix", encode_key(request, prefix)), ("MaxKeys", limit)]
    if delimiter:
        tree.append(("Delimiter", encode_key(request, delimiter)))
    if request.args.get("encoding-type") == "url":
        tree.append(("EncodingType", "url"))
    return [*tree, ("IsTruncated", page.is_truncated)]


def _build_entries(request: Request, page: Page, *, owner: bool) -> list:
    """Return the elements of the page's objects and common prefixes."""
    tree: list = []
    for info in page.contents:
        entry: list = [
            ("Key", encode_key(request, info.key)),
            ("LastModified", operation_routes.format_timestamp(info.last_modified)),
            ("ETag", f'"{info.etag}"'),
            ("Size", info.size),
            *build_checksum_kinds(info),
            ("StorageClass", info.headers.get(STORAGE, "STANDARD")),
        ]
        tree.append(("Contents", entry + [("Owner", operation_routes.OWNER)] * owner))
    for prefix in page.prefixes:
        tree.append(("CommonPrefixes", [("Prefix", encode_key(request, prefix))]))
    return tree


def read_prefix_and_delimiter(request: Request) -> tuple[str, str]:
    return request.args.get("prefix", ""), request.args.get("delimiter", "")


def encode_key(request: Request, value: str) -> str:
    """Return the key, URL-encoded if the client asks for that: XML 1.0 cannot contain every key.

    Raises ``InvalidArgument`` for another encoding.
    """
    kind = request.args.get("encoding-type")
    if kind not in (None, "url"):
        fields = {"ArgumentName": "encoding-type", "ArgumentValue": kind}
        message = "Invalid Encoding Method specified in Request"
        raise S3Error("InvalidArgument", message, fields=fields)
    return quote(value, safe="/") if kind else value


def _parse_max_keys(text: str | None) -> int:
    return min(parse_number(text, "max-keys", LIMIT), LIMIT)


def build_checksum_kinds(info: ObjectInfo) -> list[tuple[str, str]]:
    """Return the algorithms and the type of the object's checksums, as elements of a listing."""
    checksums = build_checksum_headers(info)
    kinds = [("ChecksumAlgorithm", k.removeprefix(PREFIX).upper()) for k in checksums if k != TYPE]
    return [*kinds, ("ChecksumType", checksums.get(TYPE, "FULL_OBJECT"))] if kinds else []


def encode_token(last: str) -> str:
    """Return the token with which a listing continues after the entry ``last``."""
    return base64.urlsafe_b64encode(last.encode()).decode()


def decode_token(token: str | None) -> str:
    """Return the entry that a token contains; empty without a token. Raises ``InvalidArgument``."""
    try:
        # b64decode would take an empty token to mean the first page; S3 refuses it.
        if token == "":
            raise ValueError("an empty token")
        return base64.b64decode(token or "", altchars=b"-_", validate=True).decode()
    except (ValueError, UnicodeDecodeError) as wrong:
        message = "The continuation token provided is incorrect"
        fields = {"ArgumentName": "continuation-token", "ArgumentValue": token or ""}
        raise S3Error("InvalidArgument", message, fields=fields) from wrong
