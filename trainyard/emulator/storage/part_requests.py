"""Requests on a multipart upload."""

from dataclasses import dataclass
from xml.etree.ElementTree import Element

from werkzeug import Request

from trainyard.emulator.api import ApiError, S3Error
from trainyard.emulator.storage import s3_xml
from trainyard.emulator.storage.checksums import (
    ALGORITHMS,
    LINEAR,
    PREFIX,
    TYPE,
    UNSUPPORTED_ALGORITHM,
    encode_sum,
)
from trainyard.emulator.storage.multipart import MAX_PARTS, Upload, Uploads
from trainyard.emulator.storage.object_headers import STORAGE, WRITING, stored_headers, sums
from trainyard.emulator.storage.object_requests import (
    SOURCES,
    check_target,
    copy_elements,
    elements,
    open_source,
    receive,
    written_version,
)
from trainyard.emulator.storage.object_store import Check, ObjectInfo, ObjectStore
from trainyard.emulator.storage.operation_routes import operation
from trainyard.emulator.storage.preconditions import check_of_write, number, source_range
from trainyard.emulator.storage.s3_xml import OWNER, Response

_RANGE = "x-amz-copy-source-range"
_ALGORITHM = PREFIX + "algorithm"
_SIZE = "x-amz-mp-object-size"
_PAGE = 1000  # largest page, in parts (S3's limit)


@dataclass(frozen=True, slots=True)
class Parts:
    store: ObjectStore
    uploads: Uploads

    @operation("CreateMultipartUpload", heeds=WRITING | {_ALGORITHM, TYPE})
    def start(self, request: Request, bucket: str, key: str) -> Response:
        check_target(self.store, bucket, key)
        algorithm = request.headers.get(_ALGORITHM, "").lower()
        kind = _kind(algorithm, request.headers.get(TYPE))
        upload = self.uploads.create(bucket, key, *stored_headers(request.headers), algorithm, kind)
        tree = [("Bucket", bucket), ("Key", key), ("UploadId", upload.id)]
        response = s3_xml.document("InitiateMultipartUploadResult", tree)
        if algorithm:
            response.headers.extend({_ALGORITHM: algorithm.upper(), TYPE: kind})
        encryption_headers = {
            k: v for k, v in upload.headers.items() if k.startswith("x-amz-server-side-")
        }
        response.headers.extend(encryption_headers)
        return response

    @operation("UploadPart", heeds=["uploadId", "partNumber", f"{PREFIX}*"])
    def put(self, request: Request, bucket: str, key: str) -> Response:
        upload = self.uploads.find(request.args["uploadId"], bucket, key)
        place = _place(request)
        _need_algorithm(upload, request)
        with self.store.blob() as blob:
            checksums = receive(request, blob, upload.algorithm)
            part = self.uploads.add(upload, place, blob, checksums)
        return Response(headers={"ETag": f'"{part.etag}"', **checksums})

    @operation("UploadPartCopy", heeds=SOURCES | {"uploadId", "partNumber", _RANGE})
    def copy(self, request: Request, bucket: str, key: str) -> Response:
        upload = self.uploads.find(request.args["uploadId"], bucket, key)
        place = _place(request)
        info, stored_bytes, _ = open_source(self.store, request)
        with stored_bytes, self.store.blob() as blob:
            start, stop = source_range(request.headers.get(_RANGE), info.size)
            checksum = ALGORITHMS[upload.algorithm]() if upload.algorithm else None
            for chunk in stored_bytes.chunks(start, stop):
                blob.write(chunk)
                if checksum:
                    checksum.update(chunk)
            checksums = {PREFIX + upload.algorithm: encode_sum(checksum)} if checksum else {}
            part = self.uploads.add(upload, place, blob, checksums)
        tree = copy_elements(part.etag, s3_xml.timestamp(part.modification_time), checksums)
        response = s3_xml.document("CopyPartResult", tree)
        if info.seq:
            response.headers["x-amz-copy-source-version-id"] = info.version
        return response

    @operation(
        "CompleteMultipartUpload", heeds=f"uploadId if-match if-none-match {_SIZE} {PREFIX}*"
    )
    def complete(self, request: Request, bucket: str, key: str) -> Response:
        check = check_of_write(request.headers)
        claims = {
            k.lower(): v
            for k, v in request.headers
            if k.lower().startswith(PREFIX) or k.lower() == _SIZE
        }
        request_tree = s3_xml.parse(request.get_data())
        info = self._complete_upload(
            request.args["uploadId"], bucket, key, request_tree, claims, check
        )
        tree = [
            ("Location", f"{request.host_url}{bucket}/{key}"),
            ("Bucket", bucket),
            ("Key", key),
            ("ETag", f'"{info.etag}"'),
            *elements(sums(info)),
        ]
        response = s3_xml.document("CompleteMultipartUploadResult", tree)
        encryption_headers = {
            k: v for k, v in info.headers.items() if k.startswith("x-amz-server-side-")
        }
        response.headers.extend(encryption_headers | written_version(info))
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
        """Return the object that the upload became, by this request or by another."""
        if info := self._find_completed(name, bucket, key):
            return info
        try:
            upload = self.uploads.find(name, bucket, key)
        except ApiError:  # another request may have ended it in between
            if info := self._find_completed(name, bucket, key):
                return info
            raise
        with upload.ending:
            info = self._find_completed(name, bucket, key)
            return info or self.uploads.complete(upload, request_tree, claims, check)

    def _find_completed(self, upload: str, bucket: str, key: str) -> ObjectInfo | None:
        """Return the object for a client that repeats its request, also after a restart."""
        return self.store.index.find_upload(bucket, key, upload)

    @operation("AbortMultipartUpload", heeds="uploadId")
    def abort(self, request: Request, bucket: str, key: str) -> Response:
        self.uploads.abort(self.uploads.find(request.args["uploadId"], bucket, key))
        return Response(status=204)

    @operation("ListParts", heeds="uploadId max-parts part-number-marker")
    def list(self, request: Request, bucket: str, key: str) -> Response:
        upload = self.uploads.find(request.args["uploadId"], bucket, key)
        after = number(request.args.get("part-number-marker") or None, "part-number-marker", 0)
        limit = min(number(request.args.get("max-parts"), "max-parts", _PAGE), _PAGE)
        places = [n for n in sorted(upload.parts) if n > after]
        tree: list = [("Bucket", bucket), ("Key", key), ("UploadId", upload.id)]
        tree += [("Initiator", OWNER), ("Owner", OWNER)]
        tree += [("StorageClass", upload.headers.get(STORAGE, "STANDARD"))]
        if upload.algorithm:
            tree.append(("ChecksumAlgorithm", upload.algorithm.upper()))
            tree.append(("ChecksumType", upload.kind))
        tree += [("PartNumberMarker", after), ("MaxParts", limit)]
        tree.append(("IsTruncated", bool(limit and places[limit:])))
        if limit and places:
            tree.append(("NextPartNumberMarker", places[:limit][-1]))
        for place in places[:limit]:
            part = upload.parts[place]
            entry = [
                ("PartNumber", place),
                ("LastModified", s3_xml.timestamp(part.modification_time)),
                ("ETag", f'"{part.etag}"'),
                ("Size", part.blob.size),
                *elements(part.checksums),
            ]
            tree.append(("Part", entry))
        return s3_xml.document("ListPartsResult", tree)


def _place(request: Request) -> int:
    text = request.args["partNumber"]
    try:
        return number(text, "partNumber", 1, 1, MAX_PARTS)
    except ApiError:
        fields = {"ArgumentName": "partNumber", "ArgumentValue": text}
        message = f"Part number must be an integer between 1 and {MAX_PARTS}, inclusive"
        raise S3Error("InvalidArgument", message, fields=fields) from None


def _kind(algorithm: str, checksum_type: str | None) -> str:
    """Return the type of the whole's checksum. Raises ``InvalidRequest`` for an impossible type."""
    if not algorithm:
        if checksum_type:
            message = "The x-amz-checksum-type header can only be used with the "
            raise ApiError("InvalidRequest", message + "x-amz-checksum-algorithm header.")
        return "COMPOSITE"
    if algorithm not in ALGORITHMS:
        raise ApiError("InvalidRequest", UNSUPPORTED_ALGORITHM)
    kind = checksum_type or ("FULL_OBJECT" if algorithm == "crc64nvme" else "COMPOSITE")
    possible = {"crc64nvme": ("FULL_OBJECT",)}.get(algorithm, ("COMPOSITE", "FULL_OBJECT"))
    if kind not in possible or (kind == "FULL_OBJECT" and algorithm not in LINEAR):
        message = f"The {kind} checksum type cannot be used with the {algorithm} checksum "
        raise ApiError("InvalidRequest", message + "algorithm.")
    return kind


def _need_algorithm(upload: Upload, request: Request) -> None:
    """Raise ``InvalidRequest`` if a part has another kind of checksum than the upload."""
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
