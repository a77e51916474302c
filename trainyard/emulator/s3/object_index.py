"""The index of the object store: an SQLite file; a change takes effect with its transaction.

Table ``objects`` contains the current object of each key. Table ``versions`` contains older
versions, and delete markers, which are rows without bytes. A key whose current version is a marker
has no row in ``objects``, so that ``objects`` alone contains exactly what S3 shows.
"""

import contextlib
import json
import os
import re
import sqlite3
import threading
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

INDEX = "index.sqlite"
PAGE = 1000  # rows read at a time while listing
NULL = "null"
"""Id of a version that was written while its bucket had no versioning."""
_END = 2**63 - 1

_COLUMNS = """
    bucket TEXT NOT NULL, key BLOB NOT NULL, blob TEXT NOT NULL, size INTEGER NOT NULL,
    etag TEXT NOT NULL, modified REAL NOT NULL, headers TEXT NOT NULL, metadata TEXT NOT NULL,
    version TEXT NOT NULL, seq INTEGER NOT NULL, parts TEXT NOT NULL, upload TEXT NOT NULL,
    crcs BLOB NOT NULL"""
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS buckets (name TEXT PRIMARY KEY, created REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS settings (
    bucket TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (bucket, name)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS objects ({_COLUMNS}, PRIMARY KEY (bucket, key)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS versions ({_COLUMNS}, PRIMARY KEY (bucket, key, seq)) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """The description of one version of an object, without its bytes."""

    key: str
    size: int
    """Size in bytes."""
    etag: str
    """MD5 in hex, with ``-<parts>`` after a multipart upload; without quotes."""
    last_modified: datetime
    """Time of the last write, UTC."""
    metadata: dict[str, str] = field(default_factory=dict)
    """User metadata, without the ``x-amz-meta-`` prefix."""
    headers: dict[str, str] = field(default_factory=dict)
    """Headers that are returned as they were put: Content-Type, checksums, tags, ..."""
    version: str = NULL
    seq: int = 0
    """Order of versions: greater than that of every older version of the key."""
    parts: tuple[dict, ...] = ()
    """Size and checksum (by header name) of each part of a multipart upload."""
    blob: str = ""
    """Name of the file with the bytes; empty for a delete marker."""
    crcs: bytes = field(default=b"", repr=False)
    """CRC-32 of each block of the bytes, as ``object_folder.BlockSums.to_bytes`` returns them."""

    @property
    def is_delete_marker(self) -> bool:
        return not self.blob


class Index:
    """The rows of the object store, in an SQLite file.

    It is thread-safe: hold :meth:`transaction` around statements that belong together.
    """

    def __init__(self, path: Path) -> None:
        self.lock = threading.RLock()
        self._ballast = Ballast(path.with_name("ballast"))
        self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")  # a completed commit is on disk
        self._db.executescript(_SCHEMA)
        # Raises an error for an index of an older version, which has fewer columns.
        for table in ("objects", "versions"):
            self._db.execute(f"SELECT version, seq, parts, upload, crcs FROM {table} LIMIT 0")

    def check(self) -> None:
        """Check every page and row. Raises sqlite3.Error or ValueError if one is damaged."""
        [[verdict]] = self.run("PRAGMA quick_check(1)")
        if verdict != "ok":
            raise ValueError(verdict)
        for table in ("buckets", "settings"):
            self.run(f"SELECT * FROM {table}")
        for table in ("objects", "versions"):
            with self.lock:
                for row in self._db.execute(f"SELECT * FROM {table}"):
                    parse_info_row(row)

    def close(self) -> None:
        with self.lock:
            self._db.close()

    def run(self, sql: str, *values: object) -> list[tuple]:
        with self.lock:
            return self._db.execute(sql, values).fetchall()

    @contextlib.contextmanager
    def transaction(self, *, freeing: bool = False) -> Iterator[None]:
        """Commit the statements inside the ``with`` block at its end; after an error, none of them.

        ``freeing`` says that the transaction frees space; it then works on a full disk, too.
        """
        with self.lock:
            # A deletion may use the reserve on a full disk; any other write restores it first.
            self._ballast.free_reserve() if freeing else self._ballast.create_reserve()
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # SQLite itself rolls back if the disk is full
                    self._db.execute("ROLLBACK")
                raise

    # Statements about one key.

    def find_current(self, bucket: str, key: str) -> ObjectInfo | None:
        sql = "SELECT * FROM objects WHERE bucket = ? AND key = ?"
        return _parse_first_row(self.run(sql, bucket, key.encode()))

    def find_latest(self, bucket: str, key: str) -> ObjectInfo | None:
        """Return the newest row in ``versions``: a marker if the key has no current object."""
        sql = "SELECT * FROM versions WHERE bucket = ? AND key = ? ORDER BY seq DESC LIMIT 1"
        return _parse_first_row(self.run(sql, bucket, key.encode()))

    def find_version(self, bucket: str, key: str, version: str) -> ObjectInfo | None:
        info = self.find_current(bucket, key)
        if info and info.version == version:
            return info
        sql = "SELECT * FROM versions WHERE bucket = ? AND key = ? AND version = ?"
        return _parse_first_row(self.run(sql, bucket, key.encode(), version))

    def find_upload(self, bucket: str, key: str, upload: str) -> ObjectInfo | None:
        """Return the object that a multipart upload became, given its id; None if there is none."""
        for table in ("objects", "versions"):
            sql = f"SELECT * FROM {table} WHERE bucket = ? AND key = ? AND upload = ?"
            if rows := self.run(sql, bucket, key.encode(), upload):
                return parse_info_row(rows[0])
        return None

    def insert(self, table: str, row: tuple) -> None:
        self.run(f"INSERT INTO {table} VALUES ({','.join('?' * len(row))})", *row)

    def remove(self, bucket: str, key: str, info: ObjectInfo) -> None:
        """Remove that version from the table that contains it."""
        for table in ("objects", "versions"):
            sql = f"DELETE FROM {table} WHERE bucket = ? AND key = ? AND version = ?"
            self.run(sql, bucket, key.encode(), info.version)

    def move(self, bucket: str, key: str, version: str, source: str, target: str) -> None:
        """Move a version between the tables ``objects`` and ``versions``."""
        condition, values = (
            "bucket = ? AND key = ? AND version = ?",
            (bucket, key.encode(), version),
        )
        self.run(f"INSERT INTO {target} SELECT * FROM {source} WHERE {condition}", *values)
        self.run(f"DELETE FROM {source} WHERE {condition}", *values)

    def set_headers(self, bucket: str, key: str, info: ObjectInfo, headers: dict) -> None:
        for table in ("objects", "versions"):
            sql = f"UPDATE {table} SET headers = ? WHERE bucket = ? AND key = ? AND version = ?"
            self.run(sql, json.dumps(headers), bucket, key.encode(), info.version)

    # Statements about many keys.

    def iter_objects(self, bucket: str, low: bytes, end: bytes) -> Iterator[ObjectInfo]:
        """Iterate over the current objects in the order of their keys as UTF-8 bytes.

        Only each page of 1,000 objects is a snapshot.
        """
        sql = "SELECT * FROM objects WHERE bucket=? AND key>=? AND key<? ORDER BY key LIMIT ?"
        while rows := self.run(sql, bucket, low, end, PAGE):
            yield from map(parse_info_row, rows)
            low = rows[-1][1] + b"\0"  # the smallest key after the last one

    def iter_versions(
        self, bucket: str, low: bytes, end: bytes, below: int = _END
    ) -> Iterator[ObjectInfo]:
        """Iterate over all versions, sorted by key, the newest first.

        For the key ``low``, include only versions whose ``seq`` is less than ``below``.
        """
        condition = "WHERE bucket=:b AND key>=:low AND key<:end AND (key>:low OR seq<:below)"
        sql = f"SELECT * FROM objects {condition} UNION ALL SELECT * FROM versions {condition}"
        # Columns 2 and 10, counted from 1, are key and seq: indices 1 and 9 of a row.
        sql += " ORDER BY 2, 10 DESC LIMIT :page"
        while True:
            values = {"b": bucket, "low": low, "end": end, "below": below, "page": PAGE}
            with self.lock:
                rows = self._db.execute(sql, values).fetchall()
            if not rows:
                return
            yield from map(parse_info_row, rows)
            low, below = rows[-1][1], rows[-1][9]

    def list_blobs(self) -> set[str]:
        """Return the names of all files that a row refers to."""
        sql = "SELECT blob FROM objects UNION SELECT blob FROM versions"
        return {name for (name,) in self.run(sql)}

    def list_keys(self, blobs: list[str]) -> list[str]:
        """Return ``s3://bucket/key`` of each object and version whose bytes are in ``blobs``."""
        condition = f"WHERE blob IN ({','.join('?' * len(blobs))})"
        sql = f"SELECT bucket, key FROM objects {condition} UNION "
        sql += f"SELECT bucket, key FROM versions {condition}"
        return [f"s3://{bucket}/{key.decode()}" for bucket, key in self.run(sql, *blobs, *blobs)]


def make_version_id(seq: int) -> str:
    """Return a version id that contains the sequence number ``seq``.

    With it, a listing can continue after a version that was deleted.
    """
    return f"{seq:016x}{uuid.uuid4().hex[:16]}"


def parse_seq(version: str) -> int | None:
    """Return the sequence number in a version id. Return None if it contains none."""
    return int(version[:16], 16) if re.fullmatch("[0-9a-f]{32}", version) else None


def parse_info_row(row: tuple) -> ObjectInfo:
    """Return the description in a row of ``objects`` or ``versions``."""
    _, key, blob, size, etag, modification_time, headers, metadata, version, seq, parts, _, crcs = (
        row
    )
    return ObjectInfo(
        key.decode(),
        size,
        etag,
        datetime.fromtimestamp(modification_time, UTC),
        json.loads(metadata),
        json.loads(headers),
        version,
        seq,
        tuple(json.loads(parts)),
        blob,
        crcs,
    )


def _parse_first_row(rows: list[tuple]) -> ObjectInfo | None:
    return parse_info_row(rows[0]) if rows else None


# Disk space that is kept in reserve, so that objects can be deleted when the disk is full.
#
# The index needs space to record a deletion: without any, nothing could be deleted.

SIZE = 1 << 20  # bytes; SQLite's journal of a deletion needs about ten pages of 4 kB


class Ballast:
    """A file that reserves disk space.

    It is deleted if less space than its size is free, and created again if there is enough.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.create_reserve()

    def free_reserve(self) -> None:
        """Free the reserve if the disk is full. Call this before a deletion."""
        if self._read_free_bytes() < SIZE:
            self._path.unlink(missing_ok=True)

    def create_reserve(self) -> None:
        """Create the reserve if there is enough space; do nothing on a full disk."""
        # Require twice its size, so that the reserve itself does not fill the disk.
        if not self._path.exists() and self._read_free_bytes() > 2 * SIZE:
            with suppress(OSError):
                self._path.write_bytes(b"\0" * SIZE)

    def _read_free_bytes(self) -> int:
        disk = os.statvfs(self._path.parent)
        return disk.f_bavail * disk.f_frsize
