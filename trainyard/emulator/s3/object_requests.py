"""Requests on one object: put, get, head, copy, delete."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from urllib.parse import parse_qsl, quote, unquote

from werkzeug import Request
from werkzeug.datastructures import Headers
from werkzeug.http import http_date

from trainyard.emulator.request_scope import ApiError, S3Error
from trainyard.emulator.s3 import operation_routes
from trainyard.emulator.s3.object_folder import Blob, StoredBytes
from trainyard.emulator.s3.object_index import NULL
from trainyard.emulator.s3.object_store import Check, ObjectInfo, ObjectStore, check_key
from trainyard.emulator.s3.operation_routes import Response, operation
from trainyard.emulator.s3.upload_body import (
    ALGORITHMS,
    PREFIX,
    TYPE,
    UNSUPPORTED_ALGORITHM,
    encode_checksum,
)
from trainyard.emulator.s3.upload_body import Upload as Body

# Preconditions, ranges and numbers in requests.

READS = "if-match if-none-match if-modified-since if-unmodified-since range"
"""Headers that :func:`check_reading` and :func:`parse_range` read."""
SOURCE = "x-amz-copy-source-"
"""Prefix of the headers with conditions on the source of a copy."""
_MOST = 10**18  # used in place of any larger number


def check_read_conditions(headers: Headers, info: ObjectInfo, prefix: str = "") -> bool:
    """Return whether the client already has this object, which means status 304 on a GET.

    Raises ``PreconditionFailed`` as in RFC 9110, 13.2.2. ``prefix`` precedes each header's name.
    """
    match = headers.get(f"{prefix}If-Match")
    unmodified_since = _parse_date(headers.get(f"{prefix}If-Unmodified-Since"))
    # Dates in HTTP have whole seconds: a date that we sent as Last-Modified must compare as equal.
    modification_time = info.last_modified.replace(microsecond=0)
    # If-Match overrides If-Unmodified-Since, and If-None-Match overrides If-Modified-Since.
    if match is not None:
        has_failed = not matches_etag(match, info.etag)
    else:
        has_failed = unmodified_since is not None and modification_time > unmodified_since
    if has_failed:
        condition = "If-Match" if match is not None else "If-Unmodified-Since"
        raise make_precondition_error(condition, prefix)
    none_match = headers.get(f"{prefix}If-None-Match")
    if none_match is not None:
        return matches_etag(none_match, info.etag)
    modified_since = _parse_date(headers.get(f"{prefix}If-Modified-Since"))
    return modified_since is not None and modification_time <= modified_since


def check_copy_source(headers: Headers, info: ObjectInfo) -> None:
    """Raise ``PreconditionFailed`` if a copy's source does not meet the client's conditions."""
    if check_read_conditions(headers, info, SOURCE):
        has_none_match = f"{SOURCE}If-None-Match" in headers
        raise make_precondition_error(
            "If-None-Match" if has_none_match else "If-Modified-Since", SOURCE
        )


def make_write_check(headers: Headers) -> Check:
    """Return a function that checks If-Match and ``If-None-Match: *`` on the object to replace.

    Raises ``NotImplemented`` for combinations that S3 refuses, too.
    """
    match, none_match = headers.get("If-Match"), headers.get("If-None-Match")
    if match is not None and none_match is not None:
        message = "If-Match and If-None-Match cannot be combined in one write."
        raise ApiError("NotImplemented", message, 501)
    if none_match not in (None, "*"):
        raise ApiError("NotImplemented", "If-None-Match on a write accepts only '*'.", 501)

    def check(current: ObjectInfo | None) -> None:
        """Raise S3's error if the conditions do not allow replacing ``current``."""
        if current and none_match:
            raise make_precondition_error("If-None-Match")
        if match is not None:
            check_etag_match(match, current)

    return check


def make_delete_check(match: str | None) -> Check:
    """Return a function that checks a delete's If-Match on the object."""

    def check(info: ObjectInfo | None) -> None:
        if match is not None:
            check_etag_match(match, info)

    return check


def check_etag_match(match: str, current: ObjectInfo | None) -> None:
    """Raise ``NoSuchKey`` if there is no object, ``PreconditionFailed`` if its ETag differs."""
    if current is None or current.is_delete_marker:
        raise ApiError("NoSuchKey", "The specified key does not exist.", 404)
    if not matches_etag(match, current.etag):
        raise make_precondition_error("If-Match")


def parse_range(header: str | None, size: int) -> tuple[int, int] | None:
    """Return (first byte, one past the last byte) of a Range header.

    Return None for the complete object, also if the header is missing or malformed (RFC 9110).
    Raises ``InvalidRange`` if the range starts after the end of the object.
    """
    match = re.fullmatch(r"bytes=([0-9]*)-([0-9]*)", (header or "").strip())
    if not match or match.groups() == ("", ""):
        return None
    first, last = (_parse_digits(text) for text in match.groups())
    if first is None:
        # bytes=-500 means the last 500 bytes.
        start, stop = max(size - (last or 0), 0), size
    elif last is not None and last < first:
        return None
    else:
        start, stop = first, size if last is None else min(last + 1, size)
    if start >= size:
        fields = {"RangeRequested": header or "", "ActualObjectSize": str(size)}
        message = "The requested range is not satisfiable"
        raise S3Error("InvalidRange", message, 416, fields=fields)
    return start, stop


def parse_source_range(header: str | None, size: int) -> tuple[int, int]:
    """Return (first byte, one past the last byte) of a copy's source; all bytes without a header.

    Raises ``InvalidArgument`` if the range is malformed or not within the source: S3 is stricter
    here than on a GET.
    """
    if header is None:
        return 0, size
    match = re.fullmatch(r"bytes=([0-9]+)-([0-9]+)", header.strip())
    first, last = (_parse_digits(text) for text in match.groups()) if match else (None, None)
    if first is None or last is None or last < first:
        message = "The x-amz-copy-source-range value must be of the form bytes=first-last where "
        raise ApiError("InvalidArgument", message + _OFFSETS)
    if last >= size:
        message = f"Range specified is not valid for source object of size: {size}"
        raise ApiError("InvalidArgument", message)
    return first, last + 1


_OFFSETS = "first and last are the zero-based offsets of the first and last bytes to copy"


def parse_number(
    text: str | None, name: str, default: int, low: int = 0, high: int = 2**31 - 1
) -> int:
    """Return the number that a query parameter or header contains; ``default`` if it is missing.

    Raises ``InvalidArgument`` if the text is not a number from ``low`` to ``high``.
    """
    if text is None:
        return default
    if not re.fullmatch("[0-9]{1,10}", text) or not low <= int(text) <= high:
        message = f"Argument {name} must be an integer between {low} and {high}, not {text[:40]!r}"
        raise ApiError("InvalidArgument", message)
    return int(text)


def _parse_digits(digits: str) -> int | None:
    """Return the number; None for an empty text."""
    if not digits:
        return None
    # int() refuses texts of more than 4,300 digits, which a client may send.
    return int(digits) if len(digits) <= 18 else _MOST


def _parse_date(text: str | None) -> datetime | None:
    """Return the date; None if it is invalid, because then it is ignored (RFC 9110, 13.1.3)."""
    if text is None:
        return None
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    # Python returns -0000 without a time zone; dates in HTTP are in UTC.
    return date if date.tzinfo else date.replace(tzinfo=UTC)


def matches_etag(header: str, etag: str) -> bool:
    """Return whether an If-Match or If-None-Match header names the ETag; ``*`` names any ETag."""
    return header.strip() == "*" or etag in [tag.strip(' "') for tag in header.split(",")]


def make_precondition_error(condition: str, prefix: str = "") -> S3Error:
    message = "At least one of the pre-conditions you specified did not hold"
    return S3Error("PreconditionFailed", message, 412, fields={"Condition": prefix + condition})


# Data that is stored with an object in addition to its bytes: headers, metadata and tags.

META = "x-amz-meta-"
ACL = "x-amz-acl"
TAGS = "x-amz-tagging"
STORAGE = "x-amz-storage-class"
_PLAIN = (  # GET and HEAD return these headers as they were put
    "Content-Type",
    "Content-Disposition",
    "Content-Language",
    "Cache-Control",
    "Expires",
)
_SPECIAL = (  # GET and HEAD return these, too, if the emulator accepts the value
    TAGS,
    STORAGE,
    "x-amz-website-redirect-location",
    "x-amz-server-side-encryption",
    "x-amz-server-side-encryption-aws-kms-key-id",
    "x-amz-server-side-encryption-bucket-key-enabled",
)
WRITING = {ACL, f"{META}*", "content-encoding", *(n.lower() for n in (*_PLAIN, *_SPECIAL))}
"""Headers of a write that :func:`select_stored_headers` respects."""

_FRAMING = re.compile(r"(^|,)\s*aws-chunked\s*(?=,|$)")
_CLASSES = "STANDARD REDUCED_REDUNDANCY STANDARD_IA ONEZONE_IA INTELLIGENT_TIERING GLACIER_IR"
"""Storage classes whose objects can be read immediately, like all objects in the emulator."""
_ARCHIVES = "GLACIER DEEP_ARCHIVE SNOW OUTPOSTS EXPRESS_ONEZONE FSX_OPENZFS FSX_ONTAP"
_OWNERS = "private bucket-owner-read bucket-owner-full-control"
_ENCRYPTIONS = "AES256 aws:kms aws:kms:dsse"
_MOST_METADATA = 2048  # bytes of all names and values together (S3's limit)
_MOST_TAGS, _LONGEST_KEY, _LONGEST_VALUE = 10, 128, 256  # S3's limits of an object's tags


def select_stored_headers(request_headers: Headers) -> tuple[dict[str, str], dict[str, str]]:
    """Return (headers, metadata) to store with the object.

    Raises an error for values that the emulator does not support.
    """
    headers = {
        name: request_headers[name] for name in (*_PLAIN, *_SPECIAL) if name in request_headers
    }
    # aws-chunked describes only how the body was sent, not the object, so S3 does not store it.
    encoding = _FRAMING.sub("", request_headers.get("Content-Encoding", "")).strip(", ")
    if encoding:
        headers["Content-Encoding"] = encoding
    headers.setdefault("Content-Type", "binary/octet-stream")  # S3's own default
    _check_class(headers)
    encryption = headers.get("x-amz-server-side-encryption", "AES256")
    if encryption not in _ENCRYPTIONS.split():
        raise ApiError("InvalidArgument", "The encryption method specified is not supported")
    check_acl(request_headers)
    if TAGS in headers:
        _check_tag_header(headers[TAGS], parse_tags(headers))
    return headers, read_metadata(request_headers)


def check_acl(request_headers: Headers) -> None:
    """Raise ``NotImplemented`` for a canned access control list that gives others access."""
    if (acl := request_headers.get(ACL)) not in (None, *_OWNERS.split()):
        raise _make_unimplemented_error(f"{ACL} {acl}")


def read_metadata(request_headers: Headers) -> dict[str, str]:
    """Return the user metadata in a request. Raises ``MetadataTooLarge`` as S3 does."""
    metadata = {
        k[len(META) :].lower(): v for k, v in request_headers.items() if k.lower().startswith(META)
    }
    size = sum(len(k) + len(v) for k, v in metadata.items())
    if size > _MOST_METADATA:
        message = "Your metadata headers exceed the maximum allowed metadata size"
        fields = {"Size": str(size), "MaxSizeAllowed": str(_MOST_METADATA)}
        raise S3Error("MetadataTooLarge", message, fields=fields)
    return metadata


def build_checksum_headers(info: ObjectInfo) -> dict[str, str]:
    """Return the object's checksums, as a mapping of header to value."""
    return {k: v for k, v in info.headers.items() if k.startswith(PREFIX)}


def build_response_headers(info: ObjectInfo) -> dict[str, str]:
    """Return the stored headers for the answer to GET or HEAD, without checksums."""
    headers = {k: v for k, v in info.headers.items() if k != TAGS and not k.startswith(PREFIX)}
    if tags := parse_tags(info.headers):
        headers["x-amz-tagging-count"] = str(len(tags))
    return headers


def parse_tags(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return (key, value) of each tag, in the order in which they were put."""
    return parse_qsl(headers.get(TAGS, ""), keep_blank_values=True)


def replace_tags(headers: Mapping[str, str], tags: list[tuple[str, str]]) -> dict[str, str]:
    """Return an object's stored headers with its tags replaced by ``tags``."""
    other_headers = {k: v for k, v in headers.items() if k != TAGS}
    text = "&".join(f"{quote(k, safe='')}={quote(v, safe='')}" for k, v in tags)
    return other_headers | ({TAGS: text} if tags else {})


def check_tags(tags: list[tuple[str, str]], limit: int = _MOST_TAGS) -> None:
    """Raise ``InvalidTag`` or ``BadRequest`` as S3 does, also for more than ``limit`` tags."""
    names = [key for key, _ in tags]
    if len(tags) > limit:
        kind = "Object" if limit == _MOST_TAGS else "Bucket"
        message = f"{kind} tags cannot be greater than {limit}"
        raise ApiError("BadRequest" if limit == _MOST_TAGS else "InvalidTag", message)
    if len(set(names)) < len(names):
        twice = {"TagKey": next(name for name in names if names.count(name) > 1)}
        message = "Cannot provide multiple Tags with the same key"
        raise S3Error("InvalidTag", message, fields=twice)
    for key, value in tags:
        fields = {"TagKey": key, "TagValue": value}
        if not 1 <= len(key) <= _LONGEST_KEY or not _TAG.fullmatch(key):
            raise S3Error("InvalidTag", "The TagKey you have provided is invalid", fields=fields)
        if len(value) > _LONGEST_VALUE or not _TAG.fullmatch(value):
            raise S3Error("InvalidTag", "The TagValue you have provided is invalid", fields=fields)
        if key.startswith("aws:"):
            prefix_message = "Your TagKey cannot be prefixed with aws:"
            other = "System tags cannot be added/updated by requester"
            raise ApiError("InvalidTag", prefix_message if limit == _MOST_TAGS else other)


def _check_tag_header(header: str, tags: list[tuple[str, str]]) -> None:
    """Check the tags in the tagging header of a request. Raises the errors of ``check_tags``."""
    if len({key for key, _ in tags}) < len(tags):
        fields = {"ArgumentName": TAGS, "ArgumentValue": header}
        message = (
            f"The header '{TAGS}' shall be encoded as UTF-8 then URLEncoded URL query parameters "
            "without tag name duplicates."
        )
        raise S3Error("InvalidArgument", message, fields=fields)
    check_tags(tags)


_TAG = re.compile(r"[\w\s.:/=+\-@]*")
"""Characters that a tag may contain: letters, digits, spaces and a few signs."""


def _check_class(headers: dict[str, str]) -> None:
    """Raise ``InvalidStorageClass``, or ``NotImplemented`` for archives, which need a restore.

    The class STANDARD is removed from ``headers``.
    """
    storage_class = headers.get(STORAGE, "STANDARD")
    if storage_class in _ARCHIVES.split():
        raise _make_unimplemented_error(f"the storage class {storage_class}")
    if storage_class not in _CLASSES.split():
        raise ApiError("InvalidStorageClass", "The storage class you specified is not valid")
    if storage_class == "STANDARD":
        headers.pop(STORAGE, None)  # S3 returns the header for every class except this one


def _make_unimplemented_error(feature: str) -> ApiError:
    return ApiError("NotImplemented", f"The emulator's S3 does not implement {feature}.", 501)


COPY = "x-amz-copy-source"
SOURCES = {
    COPY,
    "x-amz-source-expected-bucket-owner",
    *(f"{SOURCE}{name}" for name in READS.split() if name != "range"),
}
_DIRECTIVES = {f"x-amz-{name}-directive" for name in ("metadata", "tagging", "object-annotation")}
_OVERRIDES = {  # query parameter of a presigned GET -> header of the response
    f"response-{name.lower()}": name
    for name in (
        "Content-Type",
        "Content-Disposition",
        "Content-Encoding",
        "Content-Language",
        "Cache-Control",
        "Expires",
    )
}
_READING = {*_OVERRIDES, "versionId", "partNumber", "x-amz-checksum-mode", *READS.split()}


@dataclass(frozen=True, slots=True)
class Objects:
    """Requests on one object."""

    store: ObjectStore

    # Requests that read.

    @operation("GetObject", heeds=_READING)
    def get(self, request: Request, bucket: str, key: str) -> Response:
        info, stored_bytes = self.store.open(bucket, key, request.args.get("versionId"))
        try:
            response, start, stop = _describe_object(request, info)
            stored_bytes.verify(start, stop)
        except ApiError:
            stored_bytes.close()
            raise
        if response.status_code == 304:
            stored_bytes.close()
        else:
            response.response = Reader(stored_bytes, start, stop)
        return response

    @operation("HeadObject", heeds=_READING)
    def head(self, request: Request, bucket: str, key: str) -> Response:
        info = self.store.read_info(bucket, key, request.args.get("versionId"))
        return _describe_object(request, info)[0]

    # Requests that write.

    @operation("PutObject", heeds=WRITING | {"if-match", "if-none-match", f"{PREFIX}*"})
    def put(self, request: Request, bucket: str, key: str) -> Response:
        check_target(self.store, bucket, key)
        headers, metadata = select_stored_headers(request.headers)
        check = make_write_check(request.headers)
        with self.store.create_blob() as blob:
            checksums = receive_body(request, blob)
            info = self.store.commit(
                bucket, key, blob, metadata=metadata, headers=headers | checksums, check=check
            )
        return Response(headers={"ETag": f'"{info.etag}"', **_build_write_headers(info)})

    @operation(
        "CopyObject",
        heeds=WRITING
        | SOURCES
        | _DIRECTIVES
        | {"x-amz-checksum-algorithm", "if-match", "if-none-match"},
    )
    def copy(self, request: Request, bucket: str, key: str) -> Response:
        check_target(self.store, bucket, key)
        headers, metadata = select_stored_headers(request.headers)
        check = make_write_check(request.headers)
        source, stored_bytes, origin = open_copy_source(self.store, request)
        with stored_bytes, self.store.create_blob() as blob:
            _check_copy_changes_object(request, origin == (bucket, key))
            if _parse_directive(request, "metadata") == "COPY":
                # A copy does not inherit storage class, encryption, redirect and tags.
                plain_headers = {
                    k: v for k, v in source.headers.items() if not k.startswith("x-amz-")
                }
                own_headers = {k: v for k, v in headers.items() if k.startswith("x-amz-")}
                headers, metadata = plain_headers | own_headers, source.metadata
            tags = parse_tags(
                source.headers if _parse_directive(request, "tagging") == "COPY" else headers
            )
            checksums = _copy_bytes(request, source, stored_bytes, blob)
            info = self.store.commit(
                bucket,
                key,
                blob,
                metadata=metadata,
                headers=replace_tags(headers, tags) | checksums,
                # The copy of a multipart object is a single piece: its ETag is the MD5 of its
                # bytes. None makes ``commit`` compute it.
                etag=None if "-" in source.etag else source.etag,
                check=check,
            )
        response = operation_routes.make_xml_response(
            "CopyObjectResult",
            build_copy_elements(
                info.etag, operation_routes.format_timestamp(info.last_modified), checksums
            ),
        )
        response.headers.extend(_build_write_headers(info, checksums=False))
        if "versionId=" in request.headers[COPY] or source.seq:
            response.headers["x-amz-copy-source-version-id"] = source.version
        return response

    @operation("DeleteObject", heeds="versionId if-match x-amz-bypass-governance-retention")
    def delete(self, request: Request, bucket: str, key: str) -> Response:
        check = make_delete_check(request.headers.get("If-Match"))
        result = self.store.delete(bucket, key, request.args.get("versionId"), check=check)
        version = {"x-amz-version-id": result.version} if result.version else {}
        marker = {"x-amz-delete-marker": "true"} if result.marker else {}
        return Response(status=204, headers=version | marker)


class Reader:
    """The body of a response: bytes ``start`` to ``stop`` of an object, which ``close`` closes."""

    def __init__(self, stored_bytes: StoredBytes, start: int, stop: int) -> None:
        self._stored_bytes, self._chunks = stored_bytes, stored_bytes.iter_chunks(start, stop)

    def __iter__(self) -> Iterator[bytes]:
        return self._chunks

    def close(self) -> None:
        self._stored_bytes.close()


def check_target(store: ObjectStore, bucket: str, key: str) -> None:
    """Check key and bucket before the body is read, so that a refused client need not send it."""
    check_key(key)
    store.check_bucket(bucket)


def receive_body(request: Request, blob: Blob, extra_algorithm: str = "") -> dict[str, str]:
    """Write the body of a request to ``blob``; return the checksums to store, by header."""
    body = Body(request, extra_algorithm)
    for chunk in body.iter_chunks():
        blob.write(chunk)
    return body.verify()


def open_copy_source(
    store: ObjectStore, request: Request
) -> tuple[ObjectInfo, StoredBytes, tuple[str, str]]:
    """Return the object to copy, its bytes, and its (bucket, key).

    The copied version is the one in the query of the copy-source header. Raises
    ``PreconditionFailed`` if the object does not meet the client's conditions.
    """
    source_path, _, version = request.headers[COPY].partition("?versionId=")
    bucket, _, key = unquote(source_path).lstrip("/").partition("/")
    if not bucket or not key:
        message = "Copy Source must mention the source bucket and key: sourcebucket/sourcekey"
        raise ApiError("InvalidArgument", message)
    store.check_owner(bucket, request.headers.get("x-amz-source-expected-bucket-owner"))
    try:
        info, stored_bytes = store.open(bucket, key, unquote(version) if version else None)
    except S3Error as failure:
        if failure.code == "MethodNotAllowed":
            message = "The source of a copy request may not specifically refer to a delete marker "
            raise ApiError("InvalidRequest", message + "by version id.") from failure
        raise
    try:
        check_copy_source(request.headers, info)
    except ApiError:
        stored_bytes.close()
        raise
    return info, stored_bytes, (bucket, key)


def build_copy_elements(etag: str, modification_time: str, checksums: dict[str, str]) -> list:
    return [
        ("ETag", f'"{etag}"'),
        ("LastModified", modification_time),
        *build_checksum_elements(checksums),
    ]


def build_checksum_elements(checksums: dict[str, str]) -> list[tuple[str, str]]:
    """Return checksums, given by header, as elements of a document, such as ``ChecksumSHA256``."""
    return [
        ("ChecksumType" if k == TYPE else f"Checksum{k.removeprefix(PREFIX).upper()}", v)
        for k, v in checksums.items()
    ]


def build_version_header(info: ObjectInfo) -> dict[str, str]:
    """Return the version's header; empty if the object was written without versioning."""
    return {"x-amz-version-id": info.version} if info.seq else {}


def build_written_version_header(info: ObjectInfo) -> dict[str, str]:
    """Return the header of a version just written; S3 omits it once versioning is suspended."""
    return build_version_header(info) if info.version != NULL else {}


def _build_write_headers(info: ObjectInfo, *, checksums: bool = True) -> dict[str, str]:
    checksum_headers = build_checksum_headers(info) if checksums else {}
    if checksum_headers:
        checksum_headers.setdefault(TYPE, "FULL_OBJECT")
    return (
        select_encryption_headers(info.headers)
        | checksum_headers
        | build_written_version_header(info)
    )


def select_encryption_headers(headers: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in headers.items() if k.startswith("x-amz-server-side-")}


def _describe_object(request: Request, info: ObjectInfo) -> tuple[Response, int, int]:
    """Return the response to GET or HEAD without its body, and the range of bytes for the body."""
    is_not_modified = check_read_conditions(request.headers, info)
    headers = {"ETag": f'"{info.etag}"', "Last-Modified": http_date(info.last_modified)}
    headers |= build_version_header(info)
    if is_not_modified:
        return Response(status=304, headers=headers), 0, 0
    headers |= build_response_headers(info) | {
        f"{META}{name}": value for name, value in info.metadata.items()
    }
    headers |= {v: request.args[k] for k, v in _OVERRIDES.items() if k in request.args}
    part, checksums = _select_range(request, info)
    if request.headers.get("x-amz-checksum-mode") == "ENABLED":
        headers |= checksums
    response = Response(headers={**headers, "Accept-Ranges": "bytes"})
    if "partNumber" in request.args and info.parts:
        response.headers["x-amz-mp-parts-count"] = str(len(info.parts))
    start, stop = part or (0, info.size)
    response.headers["Content-Length"] = str(stop - start)
    if part:
        response.status_code = 206
        response.headers["Content-Range"] = f"bytes {start}-{stop - 1}/{info.size}"
    return response, start, stop


def _select_range(
    request: Request, info: ObjectInfo
) -> tuple[tuple[int, int] | None, dict[str, str]]:
    """Return the bytes that a Range or a partNumber asks for, and their checksums by header.

    The range is None for the whole object. A Range has no checksum.
    """
    part_number = request.args.get("partNumber")
    header = request.headers.get("Range")
    if part_number is None:
        part = parse_range(header, info.size)
        return part, {} if part else _build_typed_checksums(info)
    if header is not None:
        message = "Cannot specify both Range header and partNumber query parameter"
        raise ApiError("InvalidRequest", message)
    number = parse_number(part_number, "partNumber", 1, 1, 10_000)
    if number > max(len(info.parts), 1):
        message = "The requested partnumber is not satisfiable"
        raise ApiError("InvalidPartNumber", message, 416)
    if not info.parts:
        return ((0, info.size) if info.size else None), _build_typed_checksums(info)
    before = sum(part["size"] for part in info.parts[: number - 1])
    checksums = {k: v for k, v in info.parts[number - 1].items() if k.startswith(PREFIX)}
    kind = {TYPE: info.headers[TYPE]} if TYPE in info.headers else {}
    return (before, before + info.parts[number - 1]["size"]), checksums | kind


def _build_typed_checksums(info: ObjectInfo) -> dict[str, str]:
    checksums = build_checksum_headers(info)
    return {TYPE: "FULL_OBJECT"} | checksums if checksums else {}


def _parse_directive(request: Request, name: str) -> str:
    directive = request.headers.get(f"x-amz-{name}-directive", "COPY")
    if directive not in ("COPY", "REPLACE"):
        raise ApiError("InvalidArgument", f"Unknown {name} directive.")
    return directive


def _check_copy_changes_object(request: Request, is_same_object: bool) -> None:
    """Raise ``InvalidRequest`` for a copy onto itself that changes nothing (see CopyObject)."""
    changing = {"x-amz-storage-class", "x-amz-website-redirect-location", COPY}
    changing |= {"x-amz-server-side-encryption"}
    changes = changing & {name.lower() for name, _ in request.headers} - {COPY}
    is_unchanged = is_same_object and not changes and "?versionId=" not in request.headers[COPY]
    if is_unchanged and _parse_directive(request, "metadata") == "COPY":
        message = (
            "This copy request is illegal because it is trying to copy an object to itself without "
            "changing the object's metadata, storage class, website redirect location or "
            "encryption attributes."
        )
        raise ApiError("InvalidRequest", message)


def _copy_bytes(
    request: Request, source: ObjectInfo, stored_bytes: StoredBytes, blob: Blob
) -> dict[str, str]:
    """Copy the bytes to ``blob``, and return the checksum of the copy, by header.

    It is the checksum that the client asks for, or of the same algorithm as the source's.
    """
    source_sums = build_checksum_headers(source)
    names = [k.removeprefix(PREFIX) for k in source_sums if k != TYPE]
    algorithm = request.headers.get("x-amz-checksum-algorithm", "").lower() or (names or [""])[0]
    if algorithm and algorithm not in ALGORITHMS:
        raise ApiError("InvalidRequest", UNSUPPORTED_ALGORITHM)
    if "-" not in source.etag and (not algorithm or algorithm in names):
        # The ETag and the checksum of the source are valid for the copy: nothing is hashed again.
        blob.append(stored_bytes)
        return source_sums
    checksum = ALGORITHMS[algorithm]() if algorithm else None
    for chunk in stored_bytes.iter_chunks(0, source.size):
        blob.write(chunk)
        if checksum:
            checksum.update(chunk)
    return {PREFIX + algorithm: encode_checksum(checksum), TYPE: "FULL_OBJECT"} if checksum else {}
