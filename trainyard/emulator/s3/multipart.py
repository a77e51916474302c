"""Multipart uploads in progress.

They are kept in memory, and no row of the index refers to their bytes. So an emulator that stops
loses them, and the next start sets their bytes aside. A client then gets ``NoSuchUpload``, and has
to start again.
"""

import hashlib
import threading
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from xml.etree.ElementTree import Element

from trainyard.emulator.request_scope import ApiError, S3Error
from trainyard.emulator.s3 import operation_routes
from trainyard.emulator.s3.object_folder import Blob
from trainyard.emulator.s3.object_requests import parse_number
from trainyard.emulator.s3.object_store import Check, ObjectInfo, ObjectStore
from trainyard.emulator.s3.upload_body import (
    LINEAR,
    PREFIX,
    TYPE,
    compute_composite_checksum,
    compute_full_object_checksum,
)

MAX_PARTS = 10_000
NO_UPLOAD = (
    "The specified upload does not exist. The upload ID may be invalid, or the upload may have "
    "been aborted or completed."
)
MIN_PART = 5 << 20  # minimum bytes of every part except the last one (S3 quotas)


@dataclass(slots=True)
class Part:
    """A part that was uploaded."""

    blob: Blob
    etag: str
    checksums: dict[str, str]
    """Mapping of header name to checksum."""
    modification_time: datetime


@dataclass(slots=True)
class Upload:
    """An upload in progress."""

    id: str
    bucket: str
    key: str
    headers: dict[str, str]
    metadata: dict[str, str]
    algorithm: str
    """Algorithm of the parts' checksums, in lower case; empty if the client wants none."""
    kind: str
    """Type of the checksum, ``COMPOSITE`` or ``FULL_OBJECT``."""
    parts: dict[int, Part] = field(default_factory=dict)
    ending: threading.Lock = field(default_factory=threading.Lock)
    """Locked while the upload is completed, so that two concurrent requests give one object."""


class Uploads:
    """All uploads in progress, by id. Thread-safe, because clients send parts concurrently."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._uploads: dict[str, Upload] = {}
        self._lock = threading.Lock()

    def create(
        self, bucket: str, key: str, headers: dict, metadata: dict, algorithm: str, kind: str
    ) -> Upload:
        upload = Upload(uuid.uuid4().hex, bucket, key, headers, metadata, algorithm, kind)
        with self._lock:
            self._uploads[upload.id] = upload
        return upload

    def find(self, upload_id: str, bucket: str, key: str) -> Upload:
        """Return the upload. Raises ``NoSuchUpload`` if there is none for that bucket and key."""
        with self._lock:
            upload = self._uploads.get(upload_id)
        if upload is None or (upload.bucket, upload.key) != (bucket, key):
            self._store.check_bucket(bucket)
            fields = {"UploadId": upload_id}
            raise S3Error("NoSuchUpload", NO_UPLOAD, 404, fields=fields)
        return upload

    def list_in_bucket(self, bucket: str) -> list[Upload]:
        with self._lock:
            return [u for u in self._uploads.values() if u.bucket == bucket]

    def add_part(self, upload: Upload, number: int, blob: Blob, checksums: dict[str, str]) -> Part:
        """Store ``blob`` as part ``number``; an earlier part with that number is replaced."""
        part = Part(blob, blob.md5.hexdigest(), checksums, datetime.now(UTC))
        # Under the lock, so that a concurrent abort either finds the part, or has removed the
        # upload before.
        with self._lock:
            if upload.id not in self._uploads:  # it was aborted while this part was received
                raise S3Error("NoSuchUpload", NO_UPLOAD, 404, fields={"UploadId": upload.id})
            blob.close(sync=False)  # not synced: only the completed object has to be durable
            blob.is_committed = True
            old, upload.parts[number] = upload.parts.get(number), part
        if old:
            old.blob.discard()
        return part

    def complete(
        self, upload: Upload, request_tree: Element, claims: dict[str, str], check: Check
    ) -> ObjectInfo:
        """Create the object from the parts that the request names, in that order; end the upload.

        ``claims`` are headers about the complete object: its checksum, the type of the checksum,
        and its size in bytes.
        """
        parts = _select_parts(upload, request_tree)
        # S3's ETag of a multipart object: the MD5 of its parts' binary MD5s, and their number.
        digests = b"".join(bytes.fromhex(part.etag) for part in parts)
        etag = hashlib.md5(digests, usedforsecurity=False).hexdigest()
        checksums = _compute_checksum(upload, parts, claims)
        checksum_header = PREFIX + upload.algorithm
        with self._store.create_blob() as blob:
            for part in parts:
                with part.blob.read() as source:
                    blob.append(source)
            info = self._store.commit(
                upload.bucket,
                upload.key,
                blob,
                etag=f"{etag}-{len(parts)}",
                metadata=upload.metadata,
                headers=upload.headers | checksums,
                parts=tuple(
                    {"size": p.blob.size}
                    | {k: v for k, v in p.checksums.items() if k == checksum_header}
                    for p in parts
                ),
                upload=upload.id,
                check=check,
            )
        # Only now, because after a failed condition the client may complete the upload again.
        self.abort(upload)
        return info

    def abort(self, upload: Upload) -> None:
        """Remove the upload and the bytes of its parts."""
        with self._lock:
            self._uploads.pop(upload.id, None)
            parts = list(upload.parts.values())
        for part in parts:
            part.blob.discard()


def _select_parts(upload: Upload, request_tree: Element) -> list[Part]:
    """Return the parts that the client names in its request.

    Raises ``InvalidPart``, ``InvalidPartOrder`` or ``EntityTooSmall`` as S3 does.
    """
    parts: list[Part] = []
    part_numbers = []
    for element in request_tree.iter("Part"):
        part_number = parse_number(
            operation_routes.read_child_text(element, "PartNumber"), "PartNumber", 1, 1, MAX_PARTS
        )
        etag = operation_routes.read_child_text(element, "ETag").strip('"')
        _check_part_checksum(upload, part_number, element)
        part = upload.parts.get(part_number)
        if part is None or part.etag != etag or not _matches_checksums(part, element):
            raise ApiError(
                "InvalidPart", f"Part {part_number} was not uploaded, or not with this ETag."
            )
        part_numbers.append(part_number)
        parts.append(part)
    if not parts:
        raise ApiError("MalformedXML", "CompleteMultipartUpload names no part.")
    if part_numbers != sorted(set(part_numbers)):
        message = "The list of parts was not in ascending order. "
        message += "Parts must be ordered by part number."
        raise ApiError("InvalidPartOrder", message)
    for part_number, part in list(zip(part_numbers, parts, strict=True))[:-1]:
        if part.blob.size < MIN_PART:
            sizes = {"MinSizeAllowed": MIN_PART, "ProposedSize": part.blob.size}
            fields = {k: str(v) for k, v in (sizes | {"PartNumber": part_number}).items()}
            message = "Your proposed upload is smaller than the minimum allowed size"
            raise S3Error("EntityTooSmall", message, fields=fields)
    return parts


def _check_part_checksum(upload: Upload, part_number: int, element: Element) -> None:
    """Raise ``InvalidRequest`` if a part of a COMPOSITE upload has no checksum in the request."""
    name = upload.algorithm
    has_sum = any(child.tag.startswith("Checksum") for child in element)
    if name and upload.kind == "COMPOSITE" and not has_sum:
        message = (
            f"The upload was created using a {name} checksum. The complete request must include "
            f"the checksum for each part. It was missing for part {part_number} in the request."
        )
        raise ApiError("InvalidRequest", message)


def _matches_checksums(part: Part, element: Element) -> bool:
    """Return whether each checksum that the client sent equals that of the part."""
    for child in element:
        if child.tag.startswith("Checksum"):
            header = PREFIX + child.tag.removeprefix("Checksum").lower()
            if part.checksums.get(header) != child.text:
                return False
    return True


def _compute_checksum(upload: Upload, parts: list[Part], claims: dict[str, str]) -> dict[str, str]:
    """Return the checksum of the complete object, by header.

    Raises ``BadDigest`` if the client claims another checksum.
    """
    size = sum(part.blob.size for part in parts)
    if (size_claim := claims.pop("x-amz-mp-object-size", str(size))) != str(size):
        message = (
            f"The provided 'x-amz-mp-object-size' header value {size_claim} does not match what "
        )
        message += f"was computed: {size}"
        raise ApiError("InvalidRequest", message)
    kind = claims.pop(TYPE, upload.kind)
    if kind != upload.kind and upload.algorithm:
        message = f"The upload was created with the checksum type {upload.kind}, not {kind}."
        raise ApiError("InvalidRequest", message)
    name = upload.algorithm
    checksums: dict[str, str] = {}
    if name:
        values = [part.checksums[PREFIX + name] for part in parts]
        if kind == "FULL_OBJECT" and name in LINEAR:
            sizes = [part.blob.size for part in parts]
            checksum = compute_full_object_checksum(name, list(zip(values, sizes, strict=True)))
        else:
            checksum = compute_composite_checksum(name, values)
        checksums = {PREFIX + name: checksum, TYPE: kind}
    for header, value in claims.items():
        if header not in checksums:
            message = f"The upload was created without {header}, so it cannot be compared."
            raise ApiError("InvalidRequest", message)
        # A client may name a composite checksum with or without the number of parts.
        if value not in (checksums[header], checksums[header].partition("-")[0]):
            message = f"The {name} you specified did not match the calculated checksum."
            raise ApiError("BadDigest", message)
    return checksums
