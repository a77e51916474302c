"""Multipart uploads in progress.

They are held in memory over blobs without a row, so an emulator that is stopped or killed
forgets them and sweeps their bytes: a client then gets ``NoSuchUpload`` and starts again.
"""

import hashlib
import threading
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from xml.etree.ElementTree import Element

from trainyard.emulator.api import ApiError
from trainyard.emulator.blob import Blob
from trainyard.emulator.objects import ObjectInfo, ObjectStore
from trainyard.emulator.s3 import xml
from trainyard.emulator.s3.conditions import number

MAX_PARTS = 10_000
MIN_PART = 5 << 20  # bytes; every part but the last (S3 quotas)


@dataclass(slots=True)
class Part:
    blob: Blob
    etag: str
    checksums: dict[str, str]
    modified: datetime


@dataclass(slots=True)
class Upload:
    id: str
    bucket: str
    key: str
    headers: dict[str, str]
    metadata: dict[str, str]
    started: datetime
    parts: dict[int, Part] = field(default_factory=dict)


class Uploads:
    """Every upload of the store, by id. Thread-safe: clients send parts in parallel."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._uploads: dict[str, Upload] = {}
        self._lock = threading.Lock()

    def create(self, bucket: str, key: str, headers: dict, metadata: dict) -> Upload:
        upload = Upload(uuid.uuid4().hex, bucket, key, headers, metadata, datetime.now(UTC))
        with self._lock:
            self._uploads[upload.id] = upload
        return upload

    def find(self, upload_id: str, bucket: str, key: str) -> Upload:
        with self._lock:
            upload = self._uploads.get(upload_id)
        if upload is None or (upload.bucket, upload.key) != (bucket, key):
            message = f"The upload {upload_id!r} does not exist: it was completed, aborted or lost."
            raise ApiError("NoSuchUpload", message, 404)
        return upload

    def of_bucket(self, bucket: str, prefix: str) -> list[Upload]:
        with self._lock:
            found = [u for u in self._uploads.values() if u.bucket == bucket]
        found = [u for u in found if u.key.startswith(prefix)]
        return sorted(found, key=lambda u: (u.key.encode(), u.started))

    def add(self, upload: Upload, number: int, blob: Blob, checksums: dict[str, str]) -> Part:
        """Takes ``blob`` as part ``number``, in place of an earlier one of that number."""
        part = Part(blob, blob.md5.hexdigest(), checksums, datetime.now(UTC))
        with self._lock:
            if upload.id not in self._uploads:  # aborted while this part was on its way
                raise ApiError("NoSuchUpload", f"The upload {upload.id!r} was aborted.", 404)
            blob.close(sync=False)  # the assembled object is synced, parts need not be
            blob.committed = True
            old, upload.parts[number] = upload.parts.get(number), part
        if old:
            old.blob.discard()
        return part

    def complete(
        self, upload: Upload, wanted: Element, *, only_if_absent: bool, if_match: str | None
    ) -> ObjectInfo:
        """Joins the parts that the client names, in its order, into the object."""
        parts = _choose(upload, wanted)
        etag = hashlib.md5(
            b"".join(bytes.fromhex(p.etag) for p in parts), usedforsecurity=False
        ).hexdigest()
        with self._store.blob() as blob:
            for part in parts:
                with part.blob.path.open("rb") as source:
                    blob.append(source)
            info = self._store.commit(
                upload.bucket,
                upload.key,
                blob,
                etag=f"{etag}-{len(parts)}",
                metadata=upload.metadata,
                headers=upload.headers,
                only_if_absent=only_if_absent,
                if_match=if_match,
            )
        self.abort(upload)
        return info

    def abort(self, upload: Upload) -> None:
        with self._lock:
            self._uploads.pop(upload.id, None)
            parts = list(upload.parts.values())
        for part in parts:
            part.blob.discard()


def _choose(upload: Upload, wanted: Element) -> list[Part]:
    """Raises ``InvalidPart``, ``InvalidPartOrder`` or ``EntityTooSmall`` as S3 does."""
    chosen: list[Part] = []
    numbers = []
    for element in wanted.iter("Part"):
        place, etag = _place(element), xml.text(element, "ETag").strip('"')
        part = upload.parts.get(place)
        if part is None or part.etag != etag or not _sums_agree(part, element):
            raise ApiError("InvalidPart", f"Part {place} was not uploaded, or not with this ETag.")
        numbers.append(place)
        chosen.append(part)
    if not chosen:
        raise ApiError("MalformedXML", "CompleteMultipartUpload names no part.")
    if numbers != sorted(set(numbers)):
        raise ApiError("InvalidPartOrder", "The list of parts was not in ascending order.")
    if any(part.blob.size < MIN_PART for part in chosen[:-1]):
        raise ApiError("EntityTooSmall", "Every part but the last must have at least 5 MiB.")
    return chosen


def _place(part: Element) -> int:
    return number(xml.text(part, "PartNumber"), "PartNumber", 1, 1, MAX_PARTS)


def _sums_agree(part: Part, element: Element) -> bool:
    for name, value in part.checksums.items():
        claimed = element.findtext("Checksum" + name.removeprefix("x-amz-checksum-").upper())
        if claimed not in (None, value):
            return False
    return True
