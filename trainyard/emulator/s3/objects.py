"""Requests on one object: put, get, head, copy, delete, and its multipart uploads."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import unquote

from werkzeug import Request, Response
from werkzeug.http import http_date

from trainyard.emulator.api import ApiError
from trainyard.emulator.blob import CHUNK, Blob
from trainyard.emulator.objects import ObjectInfo, ObjectStore, check_key
from trainyard.emulator.s3 import xml
from trainyard.emulator.s3.body import Upload as Body
from trainyard.emulator.s3.conditions import (
    READS,
    SOURCE,
    check_reading,
    check_source,
    number,
    only_if_absent,
    range_of,
    source_range,
)
from trainyard.emulator.s3.multipart import MAX_PARTS, Uploads
from trainyard.emulator.s3.routes import operation

_META = "x-amz-meta-"
_CHECKSUM = "x-amz-checksum-"
_KEPT = (  # come back on GET and HEAD as they were put
    "Content-Type",
    "Content-Disposition",
    "Content-Language",
    "Cache-Control",
    "Expires",
    "x-amz-tagging",
    "x-amz-storage-class",
    "x-amz-website-redirect-location",
    "x-amz-server-side-encryption",
    "x-amz-server-side-encryption-aws-kms-key-id",
    "x-amz-server-side-encryption-bucket-key-enabled",
)
_CLASSES = "STANDARD REDUCED_REDUNDANCY STANDARD_IA ONEZONE_IA INTELLIGENT_TIERING GLACIER_IR"
"""Storage classes whose objects are read at once, as all of ours are."""
_ARCHIVES = "GLACIER DEEP_ARCHIVE SNOW OUTPOSTS EXPRESS_ONEZONE FSX_OPENZFS FSX_ONTAP"
_WRITING = {"x-amz-acl", *(name.lower() for name in _KEPT), "content-encoding", f"{_META}*"}
_SOURCE_RANGE = "x-amz-copy-source-range"
_SOURCES = {"x-amz-copy-source", *(f"{SOURCE}{c}" for c in READS.split() if c != "range")}
_OVERRIDES = {  # query of a presigned GET -> header of its answer
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
_READING = {*_OVERRIDES, "x-amz-checksum-mode", *READS.split()}


@dataclass(frozen=True, slots=True)
class Objects:
    store: ObjectStore
    uploads: Uploads

    # reading

    @operation("GetObject", heeds=_READING)
    def get(self, request: Request, bucket: str, key: str) -> Response:
        info, fd = self.store.open(bucket, key)
        try:
            response = self._describe(request, info)
            if response.status_code == 304:
                os.close(fd)
                return response
            start, stop = _partial(response, info, request.headers.get("Range"))
        except ApiError:
            os.close(fd)
            raise
        response.response = _Reader(fd, start, stop)
        return response

    @operation("HeadObject", heeds=_READING)
    def head(self, request: Request, bucket: str, key: str) -> Response:
        info = self.store.head(bucket, key)
        response = self._describe(request, info)
        if response.status_code != 304:
            _partial(response, info, request.headers.get("Range"))
        return response

    def _describe(self, request: Request, info: ObjectInfo) -> Response:
        same = check_reading(request.headers, info)
        headers = {k: v for k, v in info.headers.items() if not k.startswith(_CHECKSUM)}
        headers |= {"ETag": f'"{info.etag}"', "Last-Modified": http_date(info.last_modified)}
        if same:
            return Response(status=304, headers=headers)
        if tags := headers.pop("x-amz-tagging", ""):
            headers["x-amz-tagging-count"] = str(len(tags.split("&")))
        headers |= {f"{_META}{name}": value for name, value in info.metadata.items()}
        headers |= {v: request.args[k] for k, v in _OVERRIDES.items() if k in request.args}
        asked = request.headers.get("x-amz-checksum-mode") == "ENABLED"
        if asked and "Range" not in request.headers:  # a checksum is of the whole object
            headers |= {k: v for k, v in info.headers.items() if k.startswith(_CHECKSUM)}
        return Response(headers={**headers, "Accept-Ranges": "bytes"})

    # writing

    @operation("PutObject", heeds=_WRITING | {"if-match", "if-none-match", _CHECKSUM + "*"})
    def put(self, request: Request, bucket: str, key: str) -> Response:
        self._check_target(bucket, key)
        headers, metadata = _kept(request)
        with self.store.blob() as blob:
            sums = _receive(request, blob)
            info = self.store.commit(
                bucket,
                key,
                blob,
                metadata=metadata,
                headers=headers | sums,
                only_if_absent=only_if_absent(request.headers),
                if_match=request.headers.get("If-Match"),
            )
        return Response(headers={"ETag": f'"{info.etag}"', **sums})

    @operation("CopyObject", heeds=_WRITING | _SOURCES | {"x-amz-metadata-directive"})
    def copy(self, request: Request, bucket: str, key: str) -> Response:
        self._check_target(bucket, key)
        source, fd = self._source(request)
        with os.fdopen(fd, "rb") as stream, self.store.blob() as blob:
            blob.append(stream)
            headers, metadata = source.headers, source.metadata
            if request.headers.get("x-amz-metadata-directive") == "REPLACE":
                sums = {k: v for k, v in source.headers.items() if k.startswith(_CHECKSUM)}
                headers, metadata = _kept(request)
                headers |= sums
            info = self.store.commit(
                bucket, key, blob, etag=source.etag, metadata=metadata, headers=headers
            )
        return xml.document(
            "CopyObjectResult", _copied(info.etag, xml.timestamp(info.last_modified))
        )

    @operation("DeleteObject", heeds="if-match")
    def delete(self, request: Request, bucket: str, key: str) -> Response:
        self.store.delete(bucket, key, if_match=request.headers.get("If-Match"))
        return Response(status=204)

    # multipart

    @operation("CreateMultipartUpload", heeds=_WRITING | {"x-amz-checksum-algorithm"})
    def start_upload(self, request: Request, bucket: str, key: str) -> Response:
        self._check_target(bucket, key)
        upload = self.uploads.create(bucket, key, *_kept(request))
        tree = [("Bucket", bucket), ("Key", key), ("UploadId", upload.id)]
        return xml.document("InitiateMultipartUploadResult", tree)

    @operation("UploadPart", heeds=["uploadId", "partNumber", _CHECKSUM + "*"])
    def put_part(self, request: Request, bucket: str, key: str) -> Response:
        upload = self.uploads.find(request.args["uploadId"], bucket, key)
        place = _part_number(request.args["partNumber"])
        with self.store.blob() as blob:
            sums = _receive(request, blob)
            part = self.uploads.add(upload, place, blob, sums)
        return Response(headers={"ETag": f'"{part.etag}"', **sums})

    @operation("UploadPartCopy", heeds=_SOURCES | {"uploadId", "partNumber", _SOURCE_RANGE})
    def copy_part(self, request: Request, bucket: str, key: str) -> Response:
        upload = self.uploads.find(request.args["uploadId"], bucket, key)
        place = _part_number(request.args["partNumber"])
        info, fd = self._source(request)
        with contextlib.closing(_Reader(fd, 0, info.size)) as reader, self.store.blob() as blob:
            reader.start, reader.stop = source_range(request.headers.get(_SOURCE_RANGE), info.size)
            for chunk in reader:
                blob.write(chunk)
            part = self.uploads.add(upload, place, blob, {})
        return xml.document("CopyPartResult", _copied(part.etag, xml.timestamp(part.modified)))

    @operation("CompleteMultipartUpload", heeds="uploadId if-match if-none-match")
    def complete_upload(self, request: Request, bucket: str, key: str) -> Response:
        upload = self.uploads.find(request.args["uploadId"], bucket, key)
        wanted = xml.parse(request.get_data())
        info = self.uploads.complete(
            upload,
            wanted,
            only_if_absent=only_if_absent(request.headers),
            if_match=request.headers.get("If-Match"),
        )
        tree = [
            ("Location", f"{request.host_url}{bucket}/{key}"),
            ("Bucket", bucket),
            ("Key", key),
            ("ETag", f'"{info.etag}"'),
        ]
        return xml.document("CompleteMultipartUploadResult", tree)

    @operation("AbortMultipartUpload", heeds="uploadId")
    def abort_upload(self, request: Request, bucket: str, key: str) -> Response:
        self.uploads.abort(self.uploads.find(request.args["uploadId"], bucket, key))
        return Response(status=204)

    @operation("ListParts", heeds="uploadId max-parts part-number-marker")
    def list_parts(self, request: Request, bucket: str, key: str) -> Response:
        upload = self.uploads.find(request.args["uploadId"], bucket, key)
        after = number(request.args.get("part-number-marker") or None, "part-number-marker", 0)
        limit = min(number(request.args.get("max-parts"), "max-parts", 1000), 1000)
        numbers = [n for n in sorted(upload.parts) if n > after]
        tree: list = [("Bucket", bucket), ("Key", key), ("UploadId", upload.id)]
        tree += [("MaxParts", limit), ("IsTruncated", len(numbers) > limit)]
        if numbers[limit:] and limit:
            tree.append(("NextPartNumberMarker", numbers[:limit][-1]))
        for each in numbers[:limit]:
            part = upload.parts[each]
            tree.append(
                (
                    "Part",
                    [
                        ("PartNumber", each),
                        ("LastModified", xml.timestamp(part.modified)),
                        ("ETag", f'"{part.etag}"'),
                        ("Size", part.blob.size),
                    ],
                )
            )
        return xml.document("ListPartsResult", tree)

    # tags

    @operation("GetObjectTagging")
    def tags(self, request: Request, bucket: str, key: str) -> Response:
        pairs = self.store.head(bucket, key).headers.get("x-amz-tagging", "")
        tags = [pair.partition("=") for pair in pairs.split("&") if pair]
        tree = [("Tag", [("Key", unquote(k)), ("Value", unquote(v))]) for k, _, v in tags]
        return xml.document("Tagging", [("TagSet", tree)])

    # inside

    def _check_target(self, bucket: str, key: str) -> None:
        """Before a body is read: a client that is refused need not send gigabytes."""
        check_key(key)
        if not self.store.has_bucket(bucket):
            raise ApiError("NoSuchBucket", f"The bucket {bucket!r} does not exist", 404)

    def _source(self, request: Request) -> tuple[ObjectInfo, int]:
        named, _, query = request.headers["x-amz-copy-source"].partition("?")
        if query:
            raise ApiError("NotImplemented", "The emulator's S3 has no versions to copy.", 501)
        bucket, _, key = unquote(named).lstrip("/").partition("/")
        info, fd = self.store.open(bucket, key)
        try:
            check_source(request.headers, info)
        except ApiError:
            os.close(fd)
            raise
        return info, fd


class _Reader:
    """Iterates over bytes ``start`` to ``stop`` of a file descriptor, which it closes."""

    def __init__(self, fd: int, start: int, stop: int) -> None:
        self._fd, self.start, self.stop = fd, start, stop

    def __iter__(self) -> Iterator[bytes]:
        try:
            while self.start < self.stop:
                chunk = os.pread(self._fd, min(CHUNK, self.stop - self.start), self.start)
                if not chunk:
                    raise OSError("an object's file is shorter than its index says")
                self.start += len(chunk)
                yield chunk
        finally:
            self.close()

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def _receive(request: Request, blob: Blob) -> dict[str, str]:
    body = Body(request)
    for chunk in body.chunks():
        blob.write(chunk)
    return body.verify()


def _kept(request: Request) -> tuple[dict[str, str], dict[str, str]]:
    headers = {name: request.headers[name] for name in _KEPT if name in request.headers}
    _check_class(headers)
    _check_acl(request.headers.get("x-amz-acl", "private"))
    encodings = request.headers.get("Content-Encoding", "").split(",")
    encodings = [e.strip() for e in encodings if e.strip() not in ("", "aws-chunked")]
    if encodings:
        headers["Content-Encoding"] = ",".join(encodings)
    headers.setdefault("Content-Type", "binary/octet-stream")  # S3's own default
    metadata = {
        name[len(_META) :].lower(): value
        for name, value in request.headers
        if name.lower().startswith(_META)
    }
    return headers, metadata


def _check_class(headers: dict[str, str]) -> None:
    """Raises ``InvalidStorageClass``, and ``NotImplemented`` for those that are read later."""
    wanted = headers.get("x-amz-storage-class", "STANDARD")
    if wanted in _ARCHIVES.split():
        message = f"The emulator's S3 does not implement the storage class {wanted}."
        raise ApiError("NotImplemented", message, 501)
    if wanted not in _CLASSES.split():
        raise ApiError("InvalidStorageClass", "The storage class you specified is not valid")
    if wanted == "STANDARD":
        headers.pop("x-amz-storage-class", None)  # S3 names every class but this one


def _check_acl(acl: str) -> None:
    """Everything here is its owner's alone: another ACL is refused, since it would not hold."""
    if acl not in ("private", "bucket-owner-full-control", "bucket-owner-read"):
        message = f"The emulator's S3 does not implement x-amz-acl {acl}: all here is private."
        raise ApiError("NotImplemented", message, 501)


def _partial(response: Response, info: ObjectInfo, header: str | None) -> tuple[int, int]:
    """Makes ``response`` a 206 where ``header`` is a range; returns the bytes to send."""
    part = range_of(header, info.size)
    start, stop = part or (0, info.size)
    response.headers["Content-Length"] = str(stop - start)
    if part:
        response.status_code = 206
        response.headers["Content-Range"] = f"bytes {start}-{stop - 1}/{info.size}"
    return start, stop


def _part_number(text: str) -> int:
    return number(text, "partNumber", 1, 1, MAX_PARTS)


def _copied(etag: str, modified: str) -> list:
    return [("ETag", f'"{etag}"'), ("LastModified", modified)]
