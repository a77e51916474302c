"""Pass each S3 request to the method that handles it; handle multipart uploads and versioning."""

import logging
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes
from xml.etree.ElementTree import Element

from werkzeug import Request

from trainyard.emulator.request_scope import ApiError, S3Error
from trainyard.emulator.s3 import operation_routes
from trainyard.emulator.s3.buckets import Buckets, Settings, Tagging
from trainyard.emulator.s3.list_objects import (
    LIMIT,
    Page,
    build_checksum_kinds,
    encode_key,
    read_page,
    read_prefix_and_delimiter,
)
from trainyard.emulator.s3.multipart import MAX_PARTS, Upload, Uploads
from trainyard.emulator.s3.object_index import parse_seq
from trainyard.emulator.s3.object_requests import (
    SOURCES,
    STORAGE,
    WRITING,
    Objects,
    build_checksum_elements,
    build_checksum_headers,
    build_copy_elements,
    build_written_version_header,
    check_target,
    make_write_check,
    open_copy_source,
    parse_number,
    parse_source_range,
    receive_body,
    select_encryption_headers,
    select_stored_headers,
)
from trainyard.emulator.s3.object_store import (
    VERSIONING,
    Check,
    ObjectInfo,
    ObjectStore,
    compute_prefix_end,
)
from trainyard.emulator.s3.operation_routes import OWNER, Level, Response, find_handler, operation
from trainyard.emulator.s3.upload_body import (
    ALGORITHMS,
    LINEAR,
    PREFIX,
    TYPE,
    UNSUPPORTED_ALGORITHM,
    encode_checksum,
    read_document,
)

log = logging.getLogger(__name__)

# bucket.localhost and bucket.s3.localhost. An IP address or plain localhost means path style.
_VIRTUAL_HOST = re.compile(r"(?P<bucket>.+?)(\.s3)?\.localhost(:\d+)?")


class S3:
    """Handles S3's REST API with an :class:`ObjectStore`; never raises :class:`ApiError`."""

    def __init__(self, store: ObjectStore) -> None:
        self._store, uploads = store, Uploads(store)
        rooms = (
            Objects(store),
            Parts(store, uploads),
            Buckets(store, uploads),
            Versions(store),
            Tagging(store),
            Settings(store),
        )
        self._rooms: dict[str, object] = {type(room).__name__: room for room in rooms}

    def answer(self, request: Request) -> Response:
        """Return the response to a request; errors become S3's error documents."""
        request_id = uuid.uuid4().hex
        try:
            bucket, key = parse_target(request)
            # A presigned URL contains some headers in its query.
            for name, value in request.args.items():
                if name.startswith("x-amz-"):
                    request.environ.setdefault(f"HTTP_{name.upper().replace('-', '_')}", value)
            self._store.check_owner(bucket, request.headers.get("x-amz-expected-bucket-owner"))
            level: Level = "object" if key else "bucket" if bucket else "service"
            method = find_handler(level, request)
            room = self._rooms[method.__qualname__.partition(".")[0]]
            response = method(room, request, bucket, key)
        except ApiError as failure:
            log.debug("s3: %s %s: %s", request.method, request.path, failure)
            # The store does not know the method of the request, and always writes GET.
            if isinstance(failure, S3Error) and "Method" in failure.fields:
                failure.fields["Method"] = request.method
            response = operation_routes.make_error_response(failure, request.path, request_id)
        response.headers.extend({"x-amz-request-id": request_id, "x-amzn-RequestId": request_id})
        return response

    def refuse_preflight(self, request: Request) -> Response:
        """Refuse a CORS preflight request: pages of other origins get no access."""
        message = "Insufficient information. Origin request header needed."
        return operation_routes.make_error_response(ApiError("BadRequest", message), request.path)


def parse_virtual_bucket(request: Request) -> str:
    """Return the bucket in the name of the host; empty for a path-style request."""
    match = _VIRTUAL_HOST.fullmatch(request.headers.get("Host", ""))
    return match["bucket"] if match else ""


def parse_target(request: Request) -> tuple[str, str]:
    """Return (bucket, key) from the raw path.

    WSGI's PATH_INFO cannot be used: it loses ``%2F`` and damages UTF-8.
    """
    raw = request.environ["RAW_URI"].partition("?")[0]
    # The request line may contain an absolute URI (RFC 9112, 3.2.2).
    raw = re.sub(r"^https?://[^/]*", "", raw)
    try:
        path = unquote_to_bytes(raw).decode().removeprefix("/")
    except UnicodeDecodeError as wrong:
        raise ApiError("InvalidURI", "Couldn't parse the specified URI: not UTF-8.") from wrong
    if bucket := parse_virtual_bucket(request):
        return bucket, path
    bucket, _, key = path.partition("/")
    return bucket, key


# Requests on a multipart upload.

_RANGE = "x-amz-copy-source-range"
_ALGORITHM = PREFIX + "algorithm"
_SIZE = "x-amz-mp-object-size"
_PAGE = 1000  # maximum parts in one response (S3's limit)


@dataclass(frozen=True, slots=True)
class Parts:
    """Requests on a multipart upload and its parts."""

    store: ObjectStore
    uploads: Uploads

    @operation("CreateMultipartUpload", heeds=WRITING | {_ALGORITHM, TYPE})
    def start(self, request: Request, bucket: str, key: str) -> Response:
        check_target(self.store, bucket, key)
        algorithm = request.headers.get(_ALGORITHM, "").lower()
        kind = _select_checksum_type(algorithm, request.headers.get(TYPE))
        upload = self.uploads.create(
            bucket, key, *select_stored_headers(request.headers), algorithm, kind
        )
        tree = [("Bucket", bucket), ("Key", key), ("UploadId", upload.id)]
        response = operation_routes.make_xml_response("InitiateMultipartUploadResult", tree)
        if algorithm:
            response.headers.extend({_ALGORITHM: algorithm.upper(), TYPE: kind})
        response.headers.extend(select_encryption_headers(upload.headers))
        return response

    @operation("UploadPart", heeds=["uploadId", "partNumber", f"{PREFIX}*"])
    def put(self, request: Request, bucket: str, key: str) -> Response:
        upload = self.uploads.find(request.args["uploadId"], bucket, key)
        part_number = _parse_part_number(request)
        _check_algorithm(upload, request)
        with self.store.create_blob() as blob:
            checksums = receive_body(request, blob, upload.algorithm)
            part = self.uploads.add_part(upload, part_number, blob, checksums)
        return Response(headers={"ETag": f'"{part.etag}"', **checksums})

    @operation("UploadPartCopy", heeds=SOURCES | {"uploadId", "partNumber", _RANGE})
    def copy(self, request: Request, bucket: str, key: str) -> Response:
        upload = self.uploads.find(request.args["uploadId"], bucket, key)
        part_number = _parse_part_number(request)
        info, stored_bytes, _ = open_copy_source(self.store, request)
        with stored_bytes, self.store.create_blob() as blob:
            start, stop = parse_source_range(request.headers.get(_RANGE), info.size)
            checksum = ALGORITHMS[upload.algorithm]() if upload.algorithm else None
            for chunk in stored_bytes.iter_chunks(start, stop):
                blob.write(chunk)
                if checksum:
                    checksum.update(chunk)
            checksums = {PREFIX + upload.algorithm: encode_checksum(checksum)} if checksum else {}
            part = self.uploads.add_part(upload, part_number, blob, checksums)
        tree = build_copy_elements(
            part.etag, operation_routes.format_timestamp(part.modification_time), checksums
        )
        response = operation_routes.make_xml_response("CopyPartResult", tree)
        if info.seq:
            response.headers["x-amz-copy-source-version-id"] = info.version
        return response

    @operation(
        "CompleteMultipartUpload", heeds=f"uploadId if-match if-none-match {_SIZE} {PREFIX}*"
    )
    def complete(self, request: Request, bucket: str, key: str) -> Response:
        check = make_write_check(request.headers)
        claims = {
            k.lower(): v
            for k, v in request.headers
            if k.lower().startswith(PREFIX) or k.lower() == _SIZE
        }
        request_tree = operation_routes.parse_xml(request.get_data())
        info = self._complete_upload(
            request.args["uploadId"], bucket, key, request_tree, claims, check
        )
        tree = [
            ("Location", f"{request.host_url}{bucket}/{key}"),
            ("Bucket", bucket),
            ("Key", key),
            ("ETag", f'"{info.etag}"'),
            *build_checksum_elements(build_checksum_headers(info)),
        ]
        response = operation_routes.make_xml_response("CompleteMultipartUploadResult", tree)
        response.headers.extend(
            select_encryption_headers(info.headers) | build_written_version_header(info)
        )
        return response

    def _complete_upload(
        self,
        name: str,
        bucket: str,
        key: str,
        request_tree: Element,
        claims: dict[str, str],
        check: Check,
    ) -> ObjectInfo:
        """Complete the upload, unless another request already did; return the object."""
        if info := self._find_completed(name, bucket, key):
            return info
        try:
            upload = self.uploads.find(name, bucket, key)
        except ApiError:  # another request may have completed or aborted it since the check
            if info := self._find_completed(name, bucket, key):
                return info
            raise
        # The second of two concurrent requests waits here, and then gets the object of the first.
        with upload.ending:
            info = self._find_completed(name, bucket, key)
            return info or self.uploads.complete(upload, request_tree, claims, check)

    def _find_completed(self, upload: str, bucket: str, key: str) -> ObjectInfo | None:
        """Return the object of a completed upload; None if it is not complete.

        This lets a client repeat its request, even after a restart of the emulator.
        """
        return self.store.index.find_upload(bucket, key, upload)

    @operation("AbortMultipartUpload", heeds="uploadId")
    def abort(self, request: Request, bucket: str, key: str) -> Response:
        self.uploads.abort(self.uploads.find(request.args["uploadId"], bucket, key))
        return Response(status=204)

    @operation("ListParts", heeds="uploadId max-parts part-number-marker")
    def list(self, request: Request, bucket: str, key: str) -> Response:
        upload = self.uploads.find(request.args["uploadId"], bucket, key)
        after = parse_number(
            request.args.get("part-number-marker") or None, "part-number-marker", 0
        )
        limit = min(parse_number(request.args.get("max-parts"), "max-parts", _PAGE), _PAGE)
        part_numbers = [n for n in sorted(upload.parts) if n > after]
        tree: list = [("Bucket", bucket), ("Key", key), ("UploadId", upload.id)]
        tree += [("Initiator", OWNER), ("Owner", OWNER)]
        tree += [("StorageClass", upload.headers.get(STORAGE, "STANDARD"))]
        if upload.algorithm:
            tree.append(("ChecksumAlgorithm", upload.algorithm.upper()))
            tree.append(("ChecksumType", upload.kind))
        tree += [("PartNumberMarker", after), ("MaxParts", limit)]
        tree.append(("IsTruncated", bool(limit and part_numbers[limit:])))
        if limit and part_numbers:
            tree.append(("NextPartNumberMarker", part_numbers[:limit][-1]))
        for part_number in part_numbers[:limit]:
            part = upload.parts[part_number]
            entry = [
                ("PartNumber", part_number),
                ("LastModified", operation_routes.format_timestamp(part.modification_time)),
                ("ETag", f'"{part.etag}"'),
                ("Size", part.blob.size),
                *build_checksum_elements(part.checksums),
            ]
            tree.append(("Part", entry))
        return operation_routes.make_xml_response("ListPartsResult", tree)


def _parse_part_number(request: Request) -> int:
    """Return the part number in a request. Raises ``InvalidArgument`` if it is not valid."""
    text = request.args["partNumber"]
    try:
        return parse_number(text, "partNumber", 1, 1, MAX_PARTS)
    except ApiError:
        fields = {"ArgumentName": "partNumber", "ArgumentValue": text}
        message = f"Part number must be an integer between 1 and {MAX_PARTS}, inclusive"
        raise S3Error("InvalidArgument", message, fields=fields) from None


def _select_checksum_type(algorithm: str, checksum_type: str | None) -> str:
    """Return the type of the complete object's checksum.

    Raises ``InvalidRequest`` if the algorithm does not have that type.
    """
    if not algorithm:
        if checksum_type:
            message = "The x-amz-checksum-type header can only be used with the "
            raise ApiError("InvalidRequest", message + "x-amz-checksum-algorithm header.")
        return "COMPOSITE"
    if algorithm not in ALGORITHMS:
        raise ApiError("InvalidRequest", UNSUPPORTED_ALGORITHM)
    kind = checksum_type or ("FULL_OBJECT" if algorithm == "crc64nvme" else "COMPOSITE")
    # S3 has CRC64NVME only over whole objects, and SHAs only over the digests of the parts.
    possible = {"crc64nvme": ("FULL_OBJECT",)}.get(algorithm, ("COMPOSITE", "FULL_OBJECT"))
    if kind not in possible or (kind == "FULL_OBJECT" and algorithm not in LINEAR):
        message = f"The {kind} checksum type cannot be used with the {algorithm} checksum "
        raise ApiError("InvalidRequest", message + "algorithm.")
    return kind


def _check_algorithm(upload: Upload, request: Request) -> None:
    """Raise ``InvalidRequest`` if a part's checksum algorithm is not that of its upload."""
    checksum_headers = [k.lower() for k, _ in request.headers if k.lower().startswith(PREFIX)]
    checksum_headers += (
        [request.headers["x-amz-trailer"].lower()] if "x-amz-trailer" in request.headers else []
    )
    if upload.algorithm and checksum_headers and PREFIX + upload.algorithm not in checksum_headers:
        message = (
            f"Checksum Type mismatch occurred, expected checksum Type: {upload.algorithm}, "
            f"actual checksum Type: {checksum_headers[0].removeprefix(PREFIX)}"
        )
        raise ApiError("InvalidRequest", message)


# The versioning of a bucket: its setting, and the listing of all versions.


@dataclass(frozen=True, slots=True)
class Versions:
    """Requests on the versioning of a bucket, and on its versions."""

    store: ObjectStore

    @operation("GetBucketVersioning")
    def get(self, request: Request, bucket: str, key: str) -> Response:
        status = self.store.read_setting(bucket, VERSIONING)
        return operation_routes.make_xml_response(
            "VersioningConfiguration", [("Status", status)] if status else []
        )

    @operation("PutBucketVersioning", heeds=f"{PREFIX}*")
    def put(self, request: Request, bucket: str, key: str) -> Response:
        self.store.check_bucket(bucket)
        configuration = operation_routes.parse_xml(read_document(request))
        status = configuration.findtext("Status")
        if configuration.findtext("MfaDelete") == "Enabled":
            message = "The emulator's S3 does not implement MfaDelete of PutBucketVersioning."
            raise ApiError("NotImplemented", message, 501)
        if status not in ("Enabled", "Suspended"):
            if status:
                raise ApiError("MalformedXML", operation_routes.MALFORMED_XML)
            message = "The Versioning element must be specified"
            raise ApiError("IllegalVersioningConfigurationException", message)
        self.store.write_setting(bucket, VERSIONING, status)
        return Response()

    @operation(
        "ListObjectVersions",
        heeds="delimiter encoding-type key-marker max-keys prefix version-id-marker",
    )
    def list_all(self, request: Request, bucket: str, key: str) -> Response:
        self.store.check_bucket(bucket)
        args = request.args
        limit = min(parse_number(args.get("max-keys"), "max-keys", LIMIT), LIMIT)
        marker, version = args.get("key-marker", ""), args.get("version-id-marker", "")
        if version and not marker:
            message = "A version-id marker cannot be specified without a key marker."
            fields = {"ArgumentName": "version-id-marker", "ArgumentValue": version}
            raise S3Error("InvalidArgument", message, fields=fields)
        page = self._read_page(request, bucket, limit, marker, version)
        tree: list = [("Name", bucket), ("Prefix", encode_key(request, args.get("prefix", "")))]
        tree += [("KeyMarker", encode_key(request, marker)), ("VersionIdMarker", version)]
        if page.is_truncated:
            tree.append(("NextKeyMarker", encode_key(request, page.last)))
            tree += [("NextVersionIdMarker", page.version)] if page.version else []
        tree += [("MaxKeys", limit), ("IsTruncated", page.is_truncated)]
        if delimiter := args.get("delimiter"):
            tree.append(("Delimiter", encode_key(request, delimiter)))
        if args.get("encoding-type") == "url":
            tree.append(("EncodingType", "url"))
        tree += [self._build_entry(request, bucket, info) for info in page.contents]
        for prefix in page.prefixes:
            tree.append(("CommonPrefixes", [("Prefix", encode_key(request, prefix))]))
        return operation_routes.make_xml_response("ListVersionsResult", tree)

    def _read_page(
        self, request: Request, bucket: str, limit: int, marker: str, version: str
    ) -> Page:
        """Return the page of versions after version ``version`` of the key ``marker``."""
        prefix = read_prefix_and_delimiter(request)[0].encode()
        first, below = self._find_start(bucket, marker, version)

        def iter_from(start: bytes) -> Iterator[ObjectInfo]:
            low = max(start or first, prefix)
            bound = below if low == first else 2**63 - 1
            return self.store.index.iter_versions(bucket, low, compute_prefix_end(prefix), bound)

        return read_page(iter_from, request, marker, limit)

    def _find_start(self, bucket: str, marker: str, version: str) -> tuple[bytes, int]:
        """Return a listing's start: (first key, sequence number that its versions must be below).

        It starts after all versions of the key ``marker``, or after ``version`` if that is given.
        """
        if not version:
            return (marker.encode() + b"\0" if marker else b""), 2**63 - 1
        seq = parse_seq(version)
        if seq is None:
            info = self.store.index.find_version(bucket, marker, version)
            seq = info.seq if info else 2**63 - 1
        return marker.encode(), seq

    def _build_entry(self, request: Request, bucket: str, info: ObjectInfo) -> tuple[str, list]:
        """Return the XML element of a version or a delete marker."""
        entry: list = [("Key", encode_key(request, info.key)), ("VersionId", info.version)]
        entry.append(("IsLatest", self._is_latest(bucket, info)))
        entry.append(("LastModified", operation_routes.format_timestamp(info.last_modified)))
        if info.is_delete_marker:
            return "DeleteMarker", [*entry, ("Owner", operation_routes.OWNER)]
        entry += [("ETag", f'"{info.etag}"'), ("Size", info.size), *build_checksum_kinds(info)]
        entry.append(("StorageClass", info.headers.get(STORAGE, "STANDARD")))
        return "Version", [*entry, ("Owner", operation_routes.OWNER)]

    def _is_latest(self, bucket: str, info: ObjectInfo) -> bool:
        current = self.store.index.find_current(bucket, info.key)
        if current or not info.is_delete_marker:
            return current is not None and current.version == info.version
        newest = self.store.index.find_latest(bucket, info.key)
        return newest is not None and newest.version == info.version
