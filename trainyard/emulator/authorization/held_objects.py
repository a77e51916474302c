"""S3 as a role may use it: what SageMaker moves for a job, and reads for a pipeline."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainyard.emulator.authorization.authority import Authority, Caller
from trainyard.emulator.authorization.s3_calls import (
    decryption,
    existence,
    list_call,
    object_call,
)
from trainyard.emulator.storage.object_store import DeleteResult, ObjectInfo, ObjectStore
from trainyard.emulator.storage.stored_bytes import StoredBytes


def held_objects(authority: Authority, role: str) -> ObjectStore:
    """Return the emulator's store as the role may use it: the store itself if nothing holds it."""
    caller = authority.session(role)
    return HeldObjects(authority, caller) if caller else authority.objects


class HeldObjects(ObjectStore):
    """The same store, whose reads, lists and writes raise ``AccessDenied`` where IAM denies."""

    def __init__(self, authority: Authority, caller: Caller) -> None:
        vars(self).update(vars(authority.objects))
        self._authority, self._caller = authority, caller

    def path(self, bucket: str, key: str, version: str | None = None) -> Path:
        self._may_read(bucket, key)
        return super().path(bucket, key, version)

    def open(
        self, bucket: str, key: str, version: str | None = None
    ) -> tuple[ObjectInfo, StoredBytes]:
        self._may_read(bucket, key)
        return super().open(bucket, key, version)

    def list(self, bucket: str, prefix: str = "", *, start: bytes = b"") -> Iterator[ObjectInfo]:
        self._authority.check(self._caller, [list_call(bucket, prefix)])
        return super().list(bucket, prefix, start=start)

    def commit(self, bucket: str, key: str, *args: Any, **options: Any) -> ObjectInfo:
        self._may("PutObject", bucket, key)
        return super().commit(bucket, key, *args, **options)

    def delete(self, bucket: str, key: str, *args: Any, **options: Any) -> DeleteResult:
        self._may("DeleteObject", bucket, key)
        return super().delete(bucket, key, *args, **options)

    def _may_read(self, bucket: str, key: str) -> None:
        self._may("GetObject", bucket, key)
        self._authority.check(self._caller, existence(self, bucket, key))
        self._authority.check(self._caller, decryption(self, bucket, key))

    def _may(self, action: str, bucket: str, key: str) -> None:
        self._authority.check(self._caller, [object_call(action, bucket, key)])
