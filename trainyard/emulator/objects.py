"""The file-backed object store under the emulator's S3.

    <root>/index.sqlite        one row per bucket and per object: the commit point
    <root>/data/ab/ab12...     the bytes of one object, under a name that is never reused
    <root>/lock                held while a store is open: one process owns a directory

A key never becomes a file name, so ``a`` and ``a/b`` live side by side, and a put is complete
exactly when its row is: bytes are written and fsynced first, then one SQLite transaction makes
them the object. Bytes without a row (a put that was killed) are swept at the next start.
"""

import fcntl
import json
import os
import re
import sqlite3
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from trainyard.common.errors import EmulatorError
from trainyard.common.whole_file import sync
from trainyard.emulator.api import ApiError
from trainyard.emulator.blob import Blob

PAGE = 1000  # rows read from the index at a time while listing
Rows = list[tuple]

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")  # S3's bucket naming rules

_SCHEMA = """
CREATE TABLE IF NOT EXISTS buckets (name TEXT PRIMARY KEY, created REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS objects (
    bucket TEXT NOT NULL, key BLOB NOT NULL, blob TEXT NOT NULL, size INTEGER NOT NULL,
    etag TEXT NOT NULL, modified REAL NOT NULL, headers TEXT NOT NULL, metadata TEXT NOT NULL,
    PRIMARY KEY (bucket, key)
) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One object, without its bytes."""

    key: str
    size: int
    """Bytes."""
    etag: str
    """Hex MD5, with ``-<parts>`` after a multipart upload; without quotes."""
    last_modified: datetime
    """UTC."""
    metadata: dict[str, str] = field(default_factory=dict)
    """User metadata, without the ``x-amz-meta-`` prefix."""
    headers: dict[str, str] = field(default_factory=dict)
    """Headers that come back as they were put: Content-Type, checksums, tags, ..."""


class ObjectStore:
    """Buckets and objects under one directory. Every method may be called from any thread.

    Raises :class:`EmulatorError` when another process has the directory open, and
    :class:`ApiError` (``NoSuchBucket``, ``NoSuchKey``, ...) for what S3 would refuse.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._data = root / "data"
        self._data.mkdir(parents=True, exist_ok=True)
        self._owner = _own(root)
        self._lock = threading.RLock()
        self.missed: dict[tuple[str, str], None] = {}
        """(bucket, key or prefix) of what was read in a bucket that did not exist, in order."""
        self._db = sqlite3.connect(
            root / "index.sqlite", check_same_thread=False, isolation_level=None
        )
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")  # a commit is on the disk when it returns
        self._db.executescript(_SCHEMA)
        self._sweep()

    def close(self) -> None:
        with self._lock:
            self._db.close()
        os.close(self._owner)

    # buckets

    def create_bucket(self, bucket: str) -> None:
        """Idempotent, as in us-east-1."""
        if not _BUCKET.fullmatch(bucket):
            raise ApiError("InvalidBucketName", f"The bucket name {bucket!r} is not valid.")
        self._run("INSERT OR IGNORE INTO buckets VALUES (?, ?)", bucket, time.time())

    def buckets(self) -> list[tuple[str, datetime]]:
        """(name, creation time), sorted by name."""
        rows = self._run("SELECT name, created FROM buckets ORDER BY name")
        return [(name, _utc(created)) for name, created in rows]

    def has_bucket(self, bucket: str) -> bool:
        return bool(self._run("SELECT 1 FROM buckets WHERE name = ?", bucket))

    def delete_bucket(self, bucket: str) -> None:
        with self._lock:
            self._need_bucket(bucket)
            if self._run("SELECT 1 FROM objects WHERE bucket = ? LIMIT 1", bucket):
                message = f"The bucket {bucket} you tried to delete is not empty"
                raise ApiError("BucketNotEmpty", message, 409)
            self._run("DELETE FROM buckets WHERE name = ?", bucket)

    # reading

    def head(self, bucket: str, key: str) -> ObjectInfo:
        return self._find(bucket, key)[0]

    def exists(self, bucket: str, key: str) -> bool:
        rows = self._run("SELECT 1 FROM objects WHERE bucket=? AND key=?", bucket, key.encode())
        return bool(rows)

    def path(self, bucket: str, key: str) -> Path:
        """The file with the object's bytes: copy it, never write to it (nor hard-link it to
        where a job may write). An overwrite or delete of the key unlinks it."""
        return self._find(bucket, key)[1]

    def open(self, bucket: str, key: str) -> tuple[ObjectInfo, int]:
        """The object and a file descriptor on its bytes, which an overwrite cannot disturb."""
        with self._lock:
            info, path = self._find(bucket, key)
            return info, os.open(path, os.O_RDONLY)

    def list(self, bucket: str, prefix: str = "", *, start: bytes = b"") -> Iterator[ObjectInfo]:
        """Objects whose key starts with ``prefix``, in UTF-8 byte order, from ``start`` on.

        A snapshot only per page of 1,000: a put during a long listing may or may not be seen.
        """
        self._need_bucket(bucket, prefix)
        low, end = max(prefix.encode(), start), successor(prefix.encode())
        while rows := self._page(bucket, low, end):
            yield from (_info(row) for row in rows)
            low = rows[-1][1] + b"\0"  # the least key after the last one

    # writing

    def blob(self) -> Blob:
        """An empty blob to write into: ``with store.blob() as blob: ...; store.commit(...)``."""
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
        only_if_absent: bool = False,
        if_match: str | None = None,
    ) -> ObjectInfo:
        """Makes ``blob`` the object ``bucket/key``, durably and at once.

        Raises ``PreconditionFailed`` when ``only_if_absent`` and the key exists, or ``if_match``
        is not its ETag; ``NoSuchKey`` when ``if_match`` is given and the key does not exist.
        """
        check_key(key)
        blob.close()
        sync(blob.path.parent)
        row = (
            bucket,
            key.encode(),
            blob.name,
            blob.size,
            etag or blob.md5.hexdigest(),
            time.time(),
            json.dumps(headers or {}),
            json.dumps(metadata or {}),
        )
        with self._lock:
            self._need_bucket(bucket)
            old = self._blob_of(bucket, key)
            if old and only_if_absent:
                raise precondition_failed("If-None-Match")
            self._need_match(bucket, key, if_match)
            self._run("INSERT OR REPLACE INTO objects VALUES (?,?,?,?,?,?,?,?)", *row)
            blob.committed = True
            self._unlink(old)
        return _info(row)

    def put_bytes(self, bucket: str, key: str, data: bytes) -> ObjectInfo:
        self._need_bucket(bucket)
        with self.blob() as blob:
            blob.write(data)
            return self.commit(bucket, key, blob)

    def put_file(self, bucket: str, key: str, path: Path) -> ObjectInfo:
        self._need_bucket(bucket)
        with self.blob() as blob:
            blob.copy_from(path)
            return self.commit(bucket, key, blob)

    def delete(self, bucket: str, key: str, *, if_match: str | None = None) -> None:
        """No error when the key does not exist, as in S3, unless ``if_match`` is given.

        Raises ``PreconditionFailed`` when ``if_match`` is not the object's ETag.
        """
        with self._lock:
            self._need_bucket(bucket)
            self._need_match(bucket, key, if_match)
            old = self._blob_of(bucket, key)
            self._run("DELETE FROM objects WHERE bucket = ? AND key = ?", bucket, key.encode())
            self._unlink(old)

    # inside

    def _run(self, sql: str, *values: object) -> Rows:
        with self._lock:
            return self._db.execute(sql, values).fetchall()

    def _need_bucket(self, bucket: str, asked: str | None = None) -> None:
        if not self.has_bucket(bucket):
            if asked is not None and len(self.missed) < 1000:
                self.missed[bucket, asked] = None
            raise ApiError("NoSuchBucket", f"The bucket {bucket!r} does not exist", 404)

    def _need_match(self, bucket: str, key: str, if_match: str | None) -> None:
        if if_match is not None and not names(if_match, self.head(bucket, key).etag):
            raise precondition_failed("If-Match")

    def _find(self, bucket: str, key: str) -> tuple[ObjectInfo, Path]:
        sql = "SELECT * FROM objects WHERE bucket = ? AND key = ?"
        rows = self._run(sql, bucket, key.encode())
        if not rows:
            self._need_bucket(bucket, key)
            raise ApiError("NoSuchKey", f"The key {key!r} does not exist in {bucket}.", 404)
        return _info(rows[0]), self._path(rows[0][2])

    def _page(self, bucket: str, low: bytes, end: bytes) -> Rows:
        sql = "SELECT * FROM objects WHERE bucket=? AND key>=? AND key<? ORDER BY key LIMIT ?"
        return self._run(sql, bucket, low, end, PAGE)

    def _path(self, name: str) -> Path:
        return self._data / name[:2] / name

    def _blob_of(self, bucket: str, key: str) -> str | None:
        sql = "SELECT blob FROM objects WHERE bucket = ? AND key = ?"
        rows = self._run(sql, bucket, key.encode())
        return rows[0][0] if rows else None

    def _unlink(self, name: str | None) -> None:
        if name:
            self._path(name).unlink(missing_ok=True)

    def _sweep(self) -> None:
        """Removes bytes that no row names: puts that a kill or a power cut interrupted."""
        named = {name for (name,) in self._run("SELECT blob FROM objects")}
        for path in self._data.glob("*/*"):
            if path.name not in named:
                path.unlink()


def successor(prefix: bytes) -> bytes:
    """The least byte string above every key that starts with ``prefix``, which is UTF-8.

    UTF-8 has no byte 0xff, so the last byte can always be raised by one.
    """
    return prefix[:-1] + bytes([prefix[-1] + 1]) if prefix else b"\xff"


def names(header: str, etag: str) -> bool:
    """Whether an If-Match or If-None-Match header names the ETag; ``*`` names any."""
    return header.strip() == "*" or etag in [each.strip(' "') for each in header.split(",")]


class S3Error(ApiError):
    """An error that says more than its message: in elements of its document, or in headers."""

    def __init__(
        self,
        code: str,
        message: str,
        status: int = 400,
        *,
        fields: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(code, message, status)
        self.fields = fields or {}
        self.headers = headers or {}


def precondition_failed(condition: str, prefix: str = "") -> S3Error:
    message = "At least one of the pre-conditions you specified did not hold"
    return S3Error("PreconditionFailed", message, 412, fields={"Condition": prefix + condition})


def check_key(key: str) -> None:
    """S3's limit: 1 to 1,024 bytes of UTF-8."""
    if not key:
        raise ApiError("InvalidArgument", "An object key must not be empty.")
    if len(key.encode()) > 1024:
        raise ApiError("KeyTooLongError", f"Your key is too long: {key[:60]}...")


def _own(root: Path) -> int:
    fd = os.open(root / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise EmulatorError(
            f"{root} is in use by another emulator: stop that one, or name another --state"
        ) from None
    return fd


def _info(row: tuple) -> ObjectInfo:
    _, key, _, size, etag, modified, headers, metadata = row
    loads = json.loads
    return ObjectInfo(key.decode(), size, etag, _utc(modified), loads(metadata), loads(headers))


def _utc(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
