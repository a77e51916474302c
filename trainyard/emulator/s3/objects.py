"""Requests on one object: put, get, head, copy, delete, and its multipart uploads."""

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from urllib.parse import unquote

from werkzeug import Request, Response
from werkzeug.http import http_date

from trainyard.emulator.api import ApiError
from trainyard.emulator.blob import CHUNK, Blob
from trainyard.emulator.objects import (
    ObjectInfo,
    ObjectStore,
    check_key,
    names,
    precondition_failed,
)
from trainyard.emulator.s3 import xml
from trainyard.emulator.s3.body import Upload as Body
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
)
_OVERRIDES = {  # query of a presigned GET -> header of its answer
    f"response-{name.lower()}": name
    for name in ("Content-Type", "Content-Disposition", "Content-Language", "Cache-Control")
}


@dataclass(frozen=True, slots=True)
class Objects:
    store: ObjectStore
    uploads: Uploads

    # reading

    @operation("object", "GET")
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

    @operation("object", "HEAD")
    def head(self, request: Request, bucket: str, key: str) -> Response:
        info = self.store.head(bucket, key)
        response = self._describe(request, info)
        if response.status_code != 304:
            _partial(response, info, request.headers.get("Range"))
        return response

    def _describe(self, request: Request, info: ObjectInfo) -> Response:
        _preconditions(request, info)
        headers = {k: v for k, v in info.headers.items() if not k.startswith(_CHECKSUM)}
        headers |= {"ETag": f'"{info.etag}"', "Last-Modified": http_date(info.last_modified)}
        if _not_modified(request, info):
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

    @operation("object", "PUT")
    def put(self, request: Request, bucket: str, key: str) -> Response:
        if "x-amz-copy-source" in request.headers:
            return self._copy(request, bucket, key)
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
                only_if_absent=_only_if_absent(request),
                if_match=request.headers.get("If-Match"),
            )
        return Response(headers={"ETag": f'"{info.etag}"', **sums})

    def _copy(self, request: Request, bucket: str, key: str) -> Response:
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

    @operation("object", "DELETE")
    def delete(self, request: Request, bucket: str, key: str) -> Response:
        self.store.delete(bucket, key, if_match=request.headers.get("If-Match"))
        return Response(status=204)

    # multipart

    @operation("object", "POST", "uploads")
    def start_upload(self, request: Request, bucket: str, key: str) -> Response:
        self._check_target(bucket, key)
        upload = self.uploads.create(bucket, key, *_kept(request))
        tree = [("Bucket", bucket), ("Key", key), ("UploadId", upload.id)]
        return xml.document("InitiateMultipartUploadResult", tree)

    @operation("object", "PUT", "uploadId")
    def put_part(self, request: Request, bucket: str, key: str) -> Response:
        upload = self.uploads.find(request.args["uploadId"], bucket, key)
        number = _part_number(request.args.get("partNumber", ""))
        with self.store.blob() as blob:
            if "x-amz-copy-source" in request.headers:
                self._copy_range(request, blob)
                part = self.uploads.add(upload, number, blob, {})
                tree = _copied(part.etag, xml.timestamp(part.modified))
                return xml.document("CopyPartResult", tree)
            sums = _receive(request, blob)
            part = self.uploads.add(upload, number, blob, sums)
        return Response(headers={"ETag": f'"{part.etag}"', **sums})

    def _copy_range(self, request: Request, blob: Blob) -> None:
        info, fd = self._source(request)
        reader = _Reader(fd, 0, info.size)
        with contextlib.closing(reader):
            part = _range(request.headers.get("x-amz-copy-source-range"), info.size)
            reader.start, reader.stop = part or (0, info.size)
            for chunk in reader:
                blob.write(chunk)

    @operation("object", "POST", "uploadId")
    def complete_upload(self, request: Request, bucket: str, key: str) -> Response:
        upload = self.uploads.find(request.args["uploadId"], bucket, key)
        wanted = xml.parse(request.get_data())
        info = self.uploads.complete(upload, wanted, only_if_absent=_only_if_absent(request))
        tree = [
            ("Location", f"{request.host_url}{bucket}/{key}"),
            ("Bucket", bucket),
            ("Key", key),
            ("ETag", f'"{info.etag}"'),
        ]
        return xml.document("CompleteMultipartUploadResult", tree)

    @operation("object", "DELETE", "uploadId")
    def abort_upload(self, request: Request, bucket: str, key: str) -> Response:
        self.uploads.abort(self.uploads.find(request.args["uploadId"], bucket, key))
        return Response(status=204)

    @operation("object", "GET", "uploadId")
    def list_parts(self, request: Request, bucket: str, key: str) -> Response:
        upload = self.uploads.find(request.args["uploadId"], bucket, key)
        after = int(request.args.get("part-number-marker") or 0)
        limit = min(int(request.args.get("max-parts", 1000)), 1000)
        numbers = [n for n in sorted(upload.parts) if n > after]
        tree: list = [("Bucket", bucket), ("Key", key), ("UploadId", upload.id)]
        tree += [("MaxParts", limit), ("IsTruncated", len(numbers) > limit)]
        if len(numbers) > limit:
            tree.append(("NextPartNumberMarker", numbers[:limit][-1]))
        for number in numbers[:limit]:
            part = upload.parts[number]
            tree.append(
                (
                    "Part",
                    [
                        ("PartNumber", number),
                        ("LastModified", xml.timestamp(part.modified)),
                        ("ETag", f'"{part.etag}"'),
                        ("Size", part.blob.size),
                    ],
                )
            )
        return xml.document("ListPartsResult", tree)

    # tags

    @operation("object", "GET", "tagging")
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
        named = unquote(request.headers["x-amz-copy-source"].partition("?")[0]).lstrip("/")
        bucket, _, key = named.partition("/")
        return self.store.open(bucket, key)


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


def _only_if_absent(request: Request) -> bool:
    wanted = request.headers.get("If-None-Match")
    if wanted is not None and "If-Match" in request.headers:
        message = "If-Match and If-None-Match cannot stand in one write."
        raise ApiError("NotImplemented", message, 501)
    if wanted not in (None, "*"):
        raise ApiError("NotImplemented", "If-None-Match on a write accepts only '*'.", 501)
    return wanted == "*"


def _preconditions(request: Request, info: ObjectInfo) -> None:
    headers = request.headers
    match, since = headers.get("If-Match"), headers.get("If-Unmodified-Since")
    failed = match is not None and not names(match, info.etag)
    if match is None and since is not None:
        failed = info.last_modified.replace(microsecond=0) > parsedate_to_datetime(since)
    if failed:
        raise precondition_failed()


def _not_modified(request: Request, info: ObjectInfo) -> bool:
    none_match = request.headers.get("If-None-Match")
    if none_match is not None:
        return names(none_match, info.etag)
    since = request.headers.get("If-Modified-Since")
    return since is not None and info.last_modified.replace(microsecond=0) <= parsedate_to_datetime(
        since
    )


def _range(header: str | None, size: int) -> tuple[int, int] | None:
    """(first byte, one past the last); None for a header that means the whole object, as one
    that is absent or malformed does (RFC 9110). Raises ``InvalidRange`` past the end."""
    match = re.fullmatch(r"bytes=(\d*)-(\d*)", (header or "").strip())
    if not match or match.groups() == ("", ""):
        return None
    first, last = match.groups()
    if not first:
        start, stop = max(size - int(last), 0), size
    elif last and int(last) < int(first):
        return None
    else:
        start, stop = int(first), min(int(last) + 1 if last else size, size)
    if start >= size:
        raise ApiError("InvalidRange", "The requested range is not satisfiable", 416)
    return start, stop


def _partial(response: Response, info: ObjectInfo, header: str | None) -> tuple[int, int]:
    """Makes ``response`` a 206 where ``header`` is a range; returns the bytes to send."""
    part = _range(header, info.size)
    start, stop = part or (0, info.size)
    response.headers["Content-Length"] = str(stop - start)
    if part:
        response.status_code = 206
        response.headers["Content-Range"] = f"bytes {start}-{stop - 1}/{info.size}"
    return start, stop


def _part_number(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MAX_PARTS:
        message = f"Part number must be an integer between 1 and {MAX_PARTS}, not {text!r}"
        raise ApiError("InvalidArgument", message)
    return int(text)


def _copied(etag: str, modified: str) -> list:
    return [("ETag", f'"{etag}"'), ("LastModified", modified)]
