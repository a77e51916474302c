"""The table of buckets: their names, owners, and the documents that are set on them."""

import re
import time
from datetime import UTC, datetime

from trainyard.emulator.api import ApiError, S3Error
from trainyard.emulator.request_scope import ACCOUNT, account
from trainyard.emulator.storage.object_index import Index

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")  # S3's bucket naming rules
OWNER = "owner"
"""Name of the bucket setting for the account that it belongs to, if that is not the emulator's
own."""


class BucketTable:
    """Buckets without their objects. Its methods are thread-safe."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self.missing_buckets: dict[tuple[str, str], None] = {}
        """(bucket, key or prefix) of reads from buckets that did not exist, in order."""

    def create_bucket(self, bucket: str) -> None:
        """Create a bucket. Idempotent, as in us-east-1."""
        if not _BUCKET.fullmatch(bucket):
            fields = {"BucketName": bucket}
            raise S3Error("InvalidBucketName", "The specified bucket is not valid.", fields=fields)
        with self.index.transaction():
            if not self.has_bucket(bucket):
                self.index.run("INSERT INTO buckets VALUES (?, ?)", bucket, time.time())
                if account() != ACCOUNT:
                    row = bucket, OWNER, account()
                    self.index.run("INSERT INTO settings VALUES (?, ?, ?)", *row)
        if self.owner(bucket) != account():
            message = "The requested bucket name is not available. The bucket namespace is shared."
            raise S3Error("BucketAlreadyExists", message, 409, fields={"BucketName": bucket})

    def buckets(self) -> list[tuple[str, datetime]]:
        """Return (name, creation time) of each bucket of the current account, sorted by name."""
        rows = self.index.run("SELECT name, created FROM buckets ORDER BY name")
        buckets = [
            (name, datetime.fromtimestamp(creation_time, UTC)) for name, creation_time in rows
        ]
        return [bucket for bucket in buckets if self.owner(bucket[0]) == account()]

    def owner(self, bucket: str) -> str:
        """Return the number of the account that a bucket belongs to. Raises ``NoSuchBucket``."""
        return self.setting(bucket, OWNER) or ACCOUNT

    def need_owner(self, bucket: str, expected_owner: str | None) -> None:
        """Raise ``AccessDenied`` if the bucket exists, and belongs to another account than
        ``expected_owner``.
        """
        if (
            expected_owner
            and bucket
            and self.has_bucket(bucket)
            and expected_owner != self.owner(bucket)
        ):
            message = f"The bucket {bucket} does not belong to account {expected_owner}."
            raise ApiError("AccessDenied", message, 403)

    def has_bucket(self, bucket: str) -> bool:
        return bool(self.index.run("SELECT 1 FROM buckets WHERE name = ?", bucket))

    def delete_bucket(self, bucket: str) -> None:
        with self.index.transaction(freeing=True):
            self.need_bucket(bucket)
            for table in ("objects", "versions"):
                if self.index.run(f"SELECT 1 FROM {table} WHERE bucket = ? LIMIT 1", bucket):
                    message = "The bucket you tried to delete is not empty"
                    if self.setting(bucket, "versioning"):
                        message += ". You must delete all versions in the bucket."
                    raise S3Error("BucketNotEmpty", message, 409, fields={"BucketName": bucket})
            self.index.run("DELETE FROM settings WHERE bucket = ?", bucket)
            self.index.run("DELETE FROM buckets WHERE name = ?", bucket)

    def need_bucket(self, bucket: str, expected_owner: str | None = None) -> None:
        """Raise ``NoSuchBucket`` if it is missing. ``expected_owner``: key or prefix about to be
        read.
        """
        if not self.has_bucket(bucket):
            if expected_owner is not None and len(self.missing_buckets) < 1000:
                self.missing_buckets[bucket, expected_owner] = None
            message = "The specified bucket does not exist"
            raise S3Error("NoSuchBucket", message, 404, fields={"BucketName": bucket})

    def setting(self, bucket: str, name: str) -> str | None:
        """Return a document that was set on the bucket; None if there is none."""
        sql = "SELECT value FROM settings WHERE bucket = ? AND name = ?"
        rows = self.index.run(sql, bucket, name)
        if not rows:
            self.need_bucket(bucket)
        return rows[0][0] if rows else None

    def set(self, bucket: str, name: str, value: str | None) -> None:
        """Set a document on the bucket; None removes it."""
        with self.index.transaction():
            self.need_bucket(bucket)
            self.index.run("DELETE FROM settings WHERE bucket = ? AND name = ?", bucket, name)
            if value is not None:
                self.index.run("INSERT INTO settings VALUES (?, ?, ?)", bucket, name, value)
