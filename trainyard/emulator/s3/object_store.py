"""The file-backed object store of the emulator's S3.

    <root>/index.sqlite        one row per bucket and per version of an object: the commit point
    <root>/data/ab/ab12...     the bytes of one version, under a name that is never reused
    <root>/interrupted/        bytes of puts and deletes that were interrupted when the process died
    <root>/lock                locked while a store is open: one process owns a directory

A key never becomes a file name, so ``a`` and ``a/b`` can both exist. A put is complete when its row
exists: the bytes are written and fsynced first, and then one SQLite transaction makes them the
object. Before that, and while they are deleted, the name of their file ends with ``.transit``. When
the store starts, ``object_folder`` handles files without a row.
"""

import contextlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path
from typing import BinaryIO

from trainyard.common.atomic_file import flush_to_disk
from trainyard.emulator.request_scope import ACCOUNT, ApiError, S3Error, read_account
from trainyard.emulator.s3.object_folder import (
    TRANSIT,
    Blob,
    StoredBytes,
    check_index,
    lock_folder,
    open_index,
    recover_folder,
    seal_index,
    unseal_index,
)
from trainyard.emulator.s3.object_index import NULL, Index, ObjectInfo, make_version_id

# The table of buckets: their names, their owners, and the documents that are set on them.

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")  # S3's bucket naming rules
OWNER = "owner"
"""Name of the bucket setting with the account that owns the bucket, if that is not the emulator's
default account."""


class BucketTable:
    """Buckets without their objects. The methods are thread-safe."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self.missing_buckets: dict[tuple[str, str], None] = {}
        """(bucket, key or prefix) of reads from buckets that did not exist, in order."""

    def create_bucket(self, bucket: str) -> None:
        """Create a bucket; do nothing if the account already has it, as in us-east-1."""
        if not _BUCKET.fullmatch(bucket):
            fields = {"BucketName": bucket}
            raise S3Error("InvalidBucketName", "The specified bucket is not valid.", fields=fields)
        with self.index.transaction():
            if not self.has_bucket(bucket):
                self.index.run("INSERT INTO buckets VALUES (?, ?)", bucket, time.time())
                if read_account() != ACCOUNT:
                    row = bucket, OWNER, read_account()
                    self.index.run("INSERT INTO settings VALUES (?, ?, ?)", *row)
        if self.find_owner(bucket) != read_account():
            message = "The requested bucket name is not available. The bucket namespace is shared."
            raise S3Error("BucketAlreadyExists", message, 409, fields={"BucketName": bucket})

    def list_buckets(self) -> list[tuple[str, datetime]]:
        """Return (name, creation time) of each bucket of the current account, sorted by name."""
        rows = self.index.run("SELECT name, created FROM buckets ORDER BY name")
        buckets = [
            (name, datetime.fromtimestamp(creation_time, UTC)) for name, creation_time in rows
        ]
        return [bucket for bucket in buckets if self.find_owner(bucket[0]) == read_account()]

    def find_owner(self, bucket: str) -> str:
        """Return the number of the account that a bucket belongs to. Raises ``NoSuchBucket``."""
        return self.read_setting(bucket, OWNER) or ACCOUNT

    def check_owner(self, bucket: str, expected_owner: str | None) -> None:
        """Raise ``AccessDenied`` if the bucket does not belong to account ``expected_owner``.

        Do nothing if no owner is expected, or if the bucket does not exist.
        """
        if (
            expected_owner
            and bucket
            and self.has_bucket(bucket)
            and expected_owner != self.find_owner(bucket)
        ):
            message = f"The bucket {bucket} does not belong to account {expected_owner}."
            raise ApiError("AccessDenied", message, 403)

    def has_bucket(self, bucket: str) -> bool:
        return bool(self.index.run("SELECT 1 FROM buckets WHERE name = ?", bucket))

    def delete_bucket(self, bucket: str) -> None:
        """Delete an empty bucket. Raises ``BucketNotEmpty`` if it contains objects or versions."""
        with self.index.transaction(freeing=True):
            self.check_bucket(bucket)
            for table in ("objects", "versions"):
                if self.index.run(f"SELECT 1 FROM {table} WHERE bucket = ? LIMIT 1", bucket):
                    message = "The bucket you tried to delete is not empty"
                    if self.read_setting(bucket, "versioning"):
                        message += ". You must delete all versions in the bucket."
                    raise S3Error("BucketNotEmpty", message, 409, fields={"BucketName": bucket})
            self.index.run("DELETE FROM settings WHERE bucket = ?", bucket)
            self.index.run("DELETE FROM buckets WHERE name = ?", bucket)

    def check_bucket(self, bucket: str, key_or_prefix: str | None = None) -> None:
        """Raise ``NoSuchBucket`` if the bucket does not exist.

        ``key_or_prefix`` is the key or prefix that the caller is about to read (not an account);
        it is recorded in ``missing_buckets``. None if nothing is read.
        """
        if not self.has_bucket(bucket):
            if key_or_prefix is not None and len(self.missing_buckets) < 1000:
                self.missing_buckets[bucket, key_or_prefix] = None
            message = "The specified bucket does not exist"
            raise S3Error("NoSuchBucket", message, 404, fields={"BucketName": bucket})

    def read_setting(self, bucket: str, name: str) -> str | None:
        """Return the bucket's setting ``name``, a document; None if it is not set."""
        sql = "SELECT value FROM settings WHERE bucket = ? AND name = ?"
        rows = self.index.run(sql, bucket, name)
        if not rows:
            self.check_bucket(bucket)
        return rows[0][0] if rows else None

    def write_setting(self, bucket: str, name: str, value: str | None) -> None:
        """Set the bucket's setting ``name`` to the document ``value``. None removes the setting."""
        with self.index.transaction():
            self.check_bucket(bucket)
            self.index.run("DELETE FROM settings WHERE bucket = ? AND name = ?", bucket, name)
            if value is not None:
                self.index.run("INSERT INTO settings VALUES (?, ?, ?)", bucket, name, value)


__all__ = ["DeleteResult", "ObjectInfo", "ObjectStore", "check_key", "compute_prefix_end"]

_VERSION = re.compile(r"[0-9a-f]{32}|null")
VERSIONING = "versioning"
"""Name of the bucket setting for versioning: ``Enabled``, ``Suspended``, or missing."""

Check = Callable[[ObjectInfo | None], None]
"""Function that gets the object which a write replaces or a delete removes, or None; it raises
:class:`ApiError` to prevent that."""
Leave = Callable[[ObjectInfo | None], None]
"""Function that marks the bytes of an object as no longer needed."""


@dataclass(frozen=True, slots=True)
class DeleteResult:
    """The result of a delete."""

    version: str = ""
    """Id of the deleted version or of the new marker; empty in a bucket without versioning."""
    marker: bool = False
    """Whether a delete marker was created or deleted."""


class ObjectStore(BucketTable):
    """Buckets and objects in one directory. The methods are thread-safe.

    ``version`` None means the current version.

    Raises :class:`EmulatorError` if another process has opened the directory, and :class:`ApiError`
    (``NoSuchBucket``, ``NoSuchKey``, ...) for what S3 refuses.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._data = root / "data"
        self._data.mkdir(parents=True, exist_ok=True)
        # Take the lock first: a directory that another process writes must not even be read.
        self._owner = lock_folder(root)
        with contextlib.ExitStack() as cleanups:
            cleanups.callback(os.close, self._owner)
            check_index(root)
            super().__init__(open_index(root))
            cleanups.callback(self.index.close)
            recover_folder(root, self.index)
            # Last, so that after a failed start the next one compares the seal again.
            unseal_index(root)
            cleanups.pop_all()

    def close(self) -> None:
        self.index.close()
        # The SQLite file is complete once it is closed, and no one may write it before it is
        # sealed.
        seal_index(self.root)
        os.close(self._owner)

    # Methods that read.

    def read_info(self, bucket: str, key: str, version: str | None = None) -> ObjectInfo:
        """Return the description of an object.

        Raises ``NoSuchKey`` or ``NoSuchVersion`` if there is none, and ``MethodNotAllowed`` for a
        delete marker.
        """
        if version is None:
            info = self.index.find_current(bucket, key)
            if info is None:
                self.check_bucket(bucket, key)
                marker = self.index.find_latest(bucket, key)
                headers = _build_marker_headers(marker) if marker else {}
                message = "The specified key does not exist."
                raise S3Error("NoSuchKey", message, 404, fields={"Key": key}, headers=headers)
            return info
        info = self._find_version(bucket, key, version)
        if info is None:
            self.check_bucket(bucket)
            fields = {"Key": key, "VersionId": version}
            message = "The specified version does not exist."
            raise S3Error("NoSuchVersion", message, 404, fields=fields)
        if info.is_delete_marker:
            message = "The specified method is not allowed against this resource."
            fields = {"Method": "GET", "ResourceType": "DeleteMarker"}
            headers = _build_marker_headers(info) | {"Allow": "DELETE"}
            raise S3Error("MethodNotAllowed", message, 405, fields=fields, headers=headers)
        return info

    def exists(self, bucket: str, key: str) -> bool:
        return self.index.find_current(bucket, key) is not None

    def locate_file(self, bucket: str, key: str, version: str | None = None) -> Path:
        """Return the file with the object's bytes, to compare or to damage them.

        The bytes are not checked. An overwrite or a delete of the key may unlink the file.
        """
        return self._build_blob_path(self.read_info(bucket, key, version).blob)

    def open(
        self, bucket: str, key: str, version: str | None = None
    ) -> tuple[ObjectInfo, StoredBytes]:
        """Return the object and its bytes.

        Raises ``InternalError`` if the bytes are damaged; reading them may raise it, too.
        """
        # Under the lock, so that no write unlinks the file after its row was read and before it is
        # opened.
        with self.index.lock:
            info = self.read_info(bucket, key, version)
            name = f"s3://{bucket}/{key}"
            return info, StoredBytes(name, self._build_blob_path(info.blob), info.size, info.crcs)

    def read_bytes(self, bucket: str, key: str, version: str | None = None) -> bytes:
        """Return all bytes of a small object. Raises ``InternalError`` if they are damaged."""
        with self.open(bucket, key, version)[1] as stored_bytes:
            return stored_bytes.readall()

    def list(self, bucket: str, prefix: str = "", *, start: bytes = b"") -> Iterator[ObjectInfo]:
        """Iterate over objects whose key starts with ``prefix``, from ``start`` on.

        The order is that of the keys as UTF-8 bytes. Only each page of 1,000 objects is a snapshot:
        a put during a long listing may or may not be included.
        """
        self.check_bucket(bucket, prefix)
        low, end = max(prefix.encode(), start), compute_prefix_end(prefix.encode())
        yield from self.index.iter_objects(bucket, low, end)

    # Methods that write.

    def create_blob(self) -> Blob:
        """Return an empty blob: ``with store.create_blob() as blob: …; store.commit(…)``."""
        return Blob(self._data)

    def commit(
        self,
        bucket: str,
        key: str,
        blob: Blob,
        *,
        etag: str | None = None,
        metadata: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
        parts: tuple[dict, ...] = (),
        upload: str = "",
        check: Check | None = None,
    ) -> ObjectInfo:
        """Make ``blob`` the object ``bucket/key``, durably and atomically.

        If the bucket keeps versions, the previous object stays as an older version. ``upload`` is
        the id of the multipart upload that the object comes from. Raises the errors of ``check``.
        """
        check_key(key)
        # The bytes and then their file name must be on disk before a row refers to them.
        blob.close()
        flush_to_disk(blob.path.parent)
        with self._begin_write(blob) as leave:
            versioning = self.read_setting(bucket, VERSIONING)
            old = self.index.find_current(bucket, key)
            if check:
                check(old)
            leave(self._retire_object(bucket, key, old, versioning))
            seq = self._make_next_seq(bucket, key, old) if versioning else 0
            self.index.insert(
                "objects",
                (
                    bucket,
                    key.encode(),
                    blob.name,
                    blob.size,
                    etag or blob.md5.hexdigest(),
                    time.time(),
                    json.dumps(headers or {}),
                    json.dumps(metadata or {}),
                    make_version_id(seq) if versioning == "Enabled" else NULL,
                    seq,
                    json.dumps(parts),
                    upload,
                    blob.crcs,
                ),
            )
            new = self.read_info(bucket, key)
        return new

    def put_bytes(self, bucket: str, key: str, data: bytes) -> ObjectInfo:
        self.check_bucket(bucket)
        with self.create_blob() as blob:
            blob.write(data)
            return self.commit(bucket, key, blob)

    def put_file(self, bucket: str, key: str, path: Path) -> ObjectInfo:
        with path.open("rb") as stream:
            return self.put_stream(bucket, key, stream)

    def put_stream(self, bucket: str, key: str, stream: BinaryIO) -> ObjectInfo:
        self.check_bucket(bucket)
        with self.create_blob() as blob:
            blob.copy_from(stream)
            return self.commit(bucket, key, blob)

    def set_headers(
        self, bucket: str, key: str, version: str | None, change: Callable[[ObjectInfo], dict]
    ) -> ObjectInfo:
        """Replace the stored headers of an object, which include its tags, by ``change(info)``."""
        with self.index.transaction():
            info = self.read_info(bucket, key, version)
            self.index.set_headers(bucket, key, info, change(info))
        return info

    def delete(
        self, bucket: str, key: str, version: str | None = None, *, check: Check | None = None
    ) -> DeleteResult:
        """Delete a key or a version; do nothing if it does not exist, as in S3.

        Without ``version``, a bucket that keeps versions gets a delete marker. Raises the errors of
        ``check``.
        """
        with self._begin_write(freeing=True) as leave:
            versioning = self.read_setting(bucket, VERSIONING)
            old = self.index.find_current(bucket, key)
            target = old if version is None else self._find_version(bucket, key, version)
            if check:
                check(target)
            if version is None and versioning:
                leave(self._retire_object(bucket, key, old, versioning))
                seq = self._make_next_seq(bucket, key, old)
                marker_version = make_version_id(seq) if versioning == "Enabled" else NULL
                row = bucket, key.encode(), "", 0, "", time.time(), "{}", "{}"
                self.index.insert("versions", (*row, marker_version, seq, "[]", "", b""))
                result = DeleteResult(marker_version, marker=True)
            elif target:
                self.index.remove(bucket, key, target)
                # The newest remaining version becomes the object, unless it is a delete marker.
                if self.index.find_current(bucket, key) is None:
                    newest = self.index.find_latest(bucket, key)
                    if newest and not newest.is_delete_marker:
                        self.index.move(bucket, key, newest.version, "versions", "objects")
                leave(target)
                result = DeleteResult(version or "", target.is_delete_marker)
            else:
                result = DeleteResult(version or "")
        return result

    # Internal methods.

    @contextlib.contextmanager
    def _begin_write(self, blob: Blob | None = None, *, freeing: bool = False) -> Iterator[Leave]:
        """Run a transaction that changes objects; if it is committed, give ``blob`` its final name.

        Yields a function to call with each object whose bytes are no longer needed. They are
        unlinked after the commit. ``freeing``: the transaction frees space, so that it also works
        on a full disk.
        """
        leaving: list[ObjectInfo | None] = []
        paths: list[Path] = []
        with self.index.lock:
            try:
                with self.index.transaction(freeing=freeing):
                    yield leaving.append
                    # Rename replaced bytes before the commit. If the process dies, the next start
                    # renames them back if their row still exists; if not, no object needs them.
                    for path in (
                        self._build_blob_path(info.blob) for info in leaving if info and info.blob
                    ):
                        with contextlib.suppress(FileNotFoundError):
                            paths.append(path.rename(path.with_name(path.name + TRANSIT)))
            except BaseException:
                # Nothing was committed: give the old bytes their names back.
                for path in paths:
                    path.rename(path.with_suffix(""))
                raise
            if blob:
                blob.finalize()
        for path in paths:
            path.unlink(missing_ok=True)

    def _retire_object(
        self, bucket: str, key: str, old: ObjectInfo | None, versioning: str | None
    ) -> ObjectInfo | None:
        """Remove the old object, or move it to the table of older versions.

        Return the version whose bytes are no longer needed; None if there is none.
        """
        if versioning == "Enabled":
            replaced_version = None
        elif versioning:  # suspended: version "null" is replaced, in whichever table it is
            replaced_version = self.index.find_version(bucket, key, NULL)
        else:
            replaced_version = old
        if replaced_version:
            self.index.remove(bucket, key, replaced_version)
        if old and old != replaced_version:
            self.index.move(bucket, key, old.version, "objects", "versions")
        return replaced_version

    def _make_next_seq(self, bucket: str, key: str, old: ObjectInfo | None) -> int:
        """Return a new sequence number: the time in ns, or more if the clock was set back."""
        behind = self.index.find_latest(bucket, key)
        return max(time.time_ns(), *(info.seq + 1 for info in (old, behind) if info), 0)

    def _find_version(self, bucket: str, key: str, version: str) -> ObjectInfo | None:
        """Return a version; None if it does not exist. Raises ``InvalidArgument`` for a bad id."""
        if not _VERSION.fullmatch(version):
            fields = {"ArgumentName": "versionId", "ArgumentValue": version}
            raise S3Error("InvalidArgument", "Invalid version id specified", fields=fields)
        return self.index.find_version(bucket, key, version)

    def _build_blob_path(self, name: str) -> Path:
        return self._data / name[:2] / name


def _build_marker_headers(marker: ObjectInfo) -> dict[str, str]:
    return {
        "x-amz-delete-marker": "true",
        "x-amz-version-id": marker.version,
        "Last-Modified": format_datetime(marker.last_modified, usegmt=True),
    }


def compute_prefix_end(prefix: bytes) -> bytes:
    """Return the smallest byte string that is above every key starting with ``prefix``, in UTF-8.

    UTF-8 never contains the byte 0xff, so the last byte can always be increased by one.
    """
    return prefix[:-1] + bytes([prefix[-1] + 1]) if prefix else b"\xff"


def check_key(key: str) -> None:
    """Raise an error unless the key has 1 to 1,024 bytes in UTF-8, which is S3's limit."""
    if not key:
        raise ApiError("InvalidArgument", "An object key must not be empty.")
    if len(key.encode()) > 1024:
        raise ApiError("KeyTooLongError", f"Your key is too long: {key[:60]}...")
