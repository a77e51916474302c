"""Requests on one object: put, get, head, copy, delete."""

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import unquote

from werkzeug import Request
from werkzeug.http import http_date

from trainyard.emulator.api import ApiError, S3Error
from trainyard.emulator.storage import s3_xml
from trainyard.emulator.storage.blob import Blob
from trainyard.emulator.storage.checksums import (
    ALGORITHMS,
    PREFIX,
    TYPE,
    UNSUPPORTED_ALGORITHM,
    encode_sum,
)
from trainyard.emulator.storage.object_headers import (
    META,
    WRITING,
    response_headers,
    stored_headers,
    sums,
    tags_of,
    with_tags,
)
from trainyard.emulator.storage.object_index import NULL
from trainyard.emulator.storage.object_store import DeleteResult, ObjectInfo, ObjectStore, check_key
from trainyard.emulator.storage.operation_routes import operation
from trainyard.emulator.storage.preconditions import (
    READS,
    SOURCE,
    check_of_delete,
    check_of_write,
    check_reading,
    check_source,
    number,
    range_of,
)
from trainyard.emulator.storage.s3_xml import Response
from trainyard.emulator.storage.stored_bytes import StoredBytes
from trainyard.emulator.storage.upload_body import Upload as Body

COPY = "x-amz-copy-source"
SOURCES = {
    COPY,
    "x-amz-source-expected-bucket-owner",
    *(f"{SOURCE}{name}" for name in READS.split() if name != "range"),
}
_DIRECTIVES = {f"x-amz-{name}-directive" for name in ("metadata", "tagging", "object-annotation")}
_OVERRIDES = {  # query parameter of a presigned GET -> header of its answer
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
    store: ObjectStore

    # reading

    @operation("GetObject", heeds=_READING)
    def get(self, request: Request, bucket: str, key: str) -> Response:
        info, stored_bytes = self.store.open(bucket, key, request.args.get("versionId"))
        try:
            response, start, stop = _describe(request, info)
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
        info = self.store.head(bucket, key, request.args.get("versionId"))
        return _describe(request, info)[0]

    # writing

    @operation("PutObject", heeds=WRITING | {"if-match", "if-none-match", f"{PREFIX}*"})
    def put(self, request: Request, bucket: str, key: str) -> Response:
        check_target(self.store, bucket, key)
        headers, metadata = stored_headers(request.headers)
        check = check_of_write(request.headers)
        with self.store.blob() as blob:
            checksums = receive(request, blob)
            info = self.store.commit(
                bucket, key, blob, metadata=metadata, headers=headers | checksums, check=check
            )
        return Response(headers={"ETag": f'"{info.etag}"', **_of_write(info)})

    @operation(
        "CopyObject",
        heeds=WRITING
        | SOURCES
        | _DIRECTIVES
        | {"x-amz-checksum-algorithm", "if-match", "if-none-match"},
    )
    def copy(self, request: Request, bucket: str, key: str) -> Response:
        check_target(self.store, bucket, key)
        headers, metadata = stored_headers(request.headers)
        check = check_of_write(request.headers)
        source, stored_bytes, origin = open_source(self.store, request)
        with stored_bytes, self.store.blob() as blob:
            _need_change(request, origin == (bucket, key))
            if _directive(request, "metadata") == "COPY":
                own_headers = {k: v for k, v in headers.items() if k.startswith("x-amz-")}
                headers, metadata = _plain(source.headers) | own_headers, source.metadata
            tags = tags_of(source.headers if _directive(request, "tagging") == "COPY" else headers)
            checksums = _copy_bytes(request, source, stored_bytes, blob)
            info = self.store.commit(
                bucket,
                key,
                blob,
                metadata=metadata,
                headers=with_tags(headers, tags) | checksums,
                etag=None if "-" in source.etag else source.etag,
                check=check,
            )
        response = s3_xml.document(
            "CopyObjectResult",
            copy_elements(info.etag, s3_xml.timestamp(info.last_modified), checksums),
        )
        response.headers.extend(_of_write(info, checksums=False))
        if "versionId=" in request.headers[COPY] or source.seq:
            response.headers["x-amz-copy-source-version-id"] = source.version
        return response

    @operation(
        "DeleteObject",
        heeds="versionId if-match x-amz-if-match-last-modified-time x-amz-if-match-size "
        "x-amz-bypass-governance-retention",
    )
    def delete(self, request: Request, bucket: str, key: str) -> Response:
        headers = request.headers
        check = check_of_delete(
            headers.get("If-Match"),
            headers.get("x-amz-if-match-last-modified-time"),
            headers.get("x-amz-if-match-size"),
        )
        result = self.store.delete(bucket, key, request.args.get("versionId"), check=check)
        return Response(status=204, headers=_make_headers(result))


class Reader:
    """The body of an answer: bytes ``start`` to ``stop`` of an object, which it closes."""

    def __init__(self, stored_bytes: StoredBytes, start: int, stop: int) -> None:
        self._stored_bytes, self._chunks = stored_bytes, stored_bytes.chunks(start, stop)

    def __iter__(self) -> Iterator[bytes]:
        return self._chunks

    def close(self) -> None:
        self._stored_bytes.close()


def check_target(store: ObjectStore, bucket: str, key: str) -> None:
    """Check key and bucket before the body is read, so that a refused client need not send it."""
    check_key(key)
    store.need_bucket(bucket)


def receive(request: Request, blob: Blob, also: str = "") -> dict[str, str]:
    body = Body(request, also)
    for chunk in body.chunks():
        blob.write(chunk)
    return body.verify()


def open_source(
    store: ObjectStore, request: Request
) -> tuple[ObjectInfo, StoredBytes, tuple[str, str]]:
    """Return the object to copy, its bytes, and its (bucket, key).

    The version is the one in the query. Raises ``PreconditionFailed`` if it does not meet the
    client's conditions.
    """
    source_path, _, version = request.headers[COPY].partition("?versionId=")
    bucket, _, key = unquote(source_path).lstrip("/").partition("/")
    if not bucket or not key:
        message = "Copy Source must mention the source bucket and key: sourcebucket/sourcekey"
        raise ApiError("InvalidArgument", message)
    store.need_owner(bucket, request.headers.get("x-amz-source-expected-bucket-owner"))
    try:
        info, stored_bytes = store.open(bucket, key, unquote(version) if version else None)
    except S3Error as failure:
        if failure.code == "MethodNotAllowed":
            message = "The source of a copy request may not specifically refer to a delete marker "
            raise ApiError("InvalidRequest", message + "by version id.") from failure
        raise
    try:
        check_source(request.headers, info)
    except ApiError:
        stored_bytes.close()
        raise
    return info, stored_bytes, (bucket, key)


def copy_elements(etag: str, modification_time: str, checksums: dict[str, str]) -> list:
    return [("ETag", f'"{etag}"'), ("LastModified", modification_time), *elements(checksums)]


def elements(checksums: dict[str, str]) -> list[tuple[str, str]]:
    """Return checksums, given by header, as elements of a document: ``ChecksumSHA256``."""
    return [
        ("ChecksumType" if k == TYPE else f"Checksum{k.removeprefix(PREFIX).upper()}", v)
        for k, v in checksums.items()
    ]


def version_header(info: ObjectInfo) -> dict[str, str]:
    """Return the version's header if the bucket kept versions when the object was written."""
    return {"x-amz-version-id": info.version} if info.seq else {}


def written_version(info: ObjectInfo) -> dict[str, str]:
    """Return the header of a written version; S3 omits it once versioning is suspended."""
    return version_header(info) if info.version != NULL else {}


def _of_write(info: ObjectInfo, *, checksums: bool = True) -> dict[str, str]:
    encryption_headers = {
        k: v for k, v in info.headers.items() if k.startswith("x-amz-server-side-")
    }
    checksum_headers = sums(info) if checksums else {}
    if checksum_headers:
        checksum_headers.setdefault(TYPE, "FULL_OBJECT")
    return encryption_headers | checksum_headers | written_version(info)


def _make_headers(result: DeleteResult) -> dict[str, str]:
    headers = {"x-amz-version-id": result.version} if result.version else {}
    return headers | ({"x-amz-delete-marker": "true"} if result.marker else {})


def _describe(request: Request, info: ObjectInfo) -> tuple[Response, int, int]:
    """Return the answer to GET or HEAD without its body, and the range of bytes for the body."""
    same = check_reading(request.headers, info)
    headers = {"ETag": f'"{info.etag}"', "Last-Modified": http_date(info.last_modified)}
    headers |= version_header(info)
    if same:
        return Response(status=304, headers=headers), 0, 0
    headers |= response_headers(info) | {
        f"{META}{name}": value for name, value in info.metadata.items()
    }
    headers |= {v: request.args[k] for k, v in _OVERRIDES.items() if k in request.args}
    part, checksums = _part(request, info)
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


def _part(request: Request, info: ObjectInfo) -> tuple[tuple[int, int] | None, dict[str, str]]:
    """Return the bytes that a Range or a partNumber asks for, and their checksum (none for a
    range).
    """
    part_number = request.args.get("partNumber")
    header = request.headers.get("Range")
    if part_number is None:
        part = range_of(header, info.size)
        return part, {} if part else _add_sum_type(info)
    if header is not None:
        message = "Cannot specify both Range header and partNumber query parameter"
        raise ApiError("InvalidRequest", message)
    place = number(part_number, "partNumber", 1, 1, 10_000)
    if place > max(len(info.parts), 1):
        message = "The requested partnumber is not satisfiable"
        raise ApiError("InvalidPartNumber", message, 416)
    if not info.parts:
        return ((0, info.size) if info.size else None), _add_sum_type(info)
    before = sum(part["size"] for part in info.parts[: place - 1])
    checksums = {k: v for k, v in info.parts[place - 1].items() if k.startswith(PREFIX)}
    kind = {TYPE: info.headers[TYPE]} if TYPE in info.headers else {}
    return (before, before + info.parts[place - 1]["size"]), checksums | kind


def _add_sum_type(info: ObjectInfo) -> dict[str, str]:
    checksums = sums(info)
    return {TYPE: "FULL_OBJECT"} | checksums if checksums else {}


def _directive(request: Request, name: str) -> str:
    directive = request.headers.get(f"x-amz-{name}-directive", "COPY")
    if directive not in ("COPY", "REPLACE"):
        raise ApiError("InvalidArgument", f"Unknown {name} directive.")
    return directive


def _need_change(request: Request, itself: bool) -> None:
    """Refuse a copy onto itself that changes nothing (CopyObject's documentation)."""
    changing = {"x-amz-storage-class", "x-amz-website-redirect-location", COPY}
    changing |= {"x-amz-server-side-encryption"}
    changes = changing & {name.lower() for name, _ in request.headers} - {COPY}
    same = itself and not changes and "?versionId=" not in request.headers[COPY]
    if same and _directive(request, "metadata") == "COPY":
        message = (
            "This copy request is illegal because it is trying to copy an object to itself without "
            "changing the object's metadata, storage class, website redirect location or "
            "encryption attributes."
        )
        raise ApiError("InvalidRequest", message)


def _plain(headers: dict[str, str]) -> dict[str, str]:
    """Return the headers that a copy inherits: not storage class, encryption, redirect, tags."""
    return {k: v for k, v in headers.items() if not k.startswith("x-amz-")}


def _copy_bytes(
    request: Request, source: ObjectInfo, stored_bytes: StoredBytes, blob: Blob
) -> dict[str, str]:
    """Copy the bytes; return the copy's checksum: the source's, or the one that the client
    wants.
    """
    had = sums(source)
    names = [k.removeprefix(PREFIX) for k in had if k != TYPE]
    algorithm = request.headers.get("x-amz-checksum-algorithm", "").lower() or (names or [""])[0]
    if algorithm and algorithm not in ALGORITHMS:
        raise ApiError("InvalidRequest", UNSUPPORTED_ALGORITHM)
    if "-" not in source.etag and (not algorithm or algorithm in names):
        blob.append(stored_bytes)
        return had
    checksum = ALGORITHMS[algorithm]() if algorithm else None
    for chunk in stored_bytes.chunks(0, source.size):
        blob.write(chunk)
        if checksum:
            checksum.update(chunk)
    return {PREFIX + algorithm: encode_sum(checksum), TYPE: "FULL_OBJECT"} if checksum else {}
