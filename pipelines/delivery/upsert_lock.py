"""Allow one upsert of a pipeline at a time: a lock object in S3, taken by a conditional write.

UpdatePipeline has no conditions, so two upserts could silently overwrite each other. S3 has them:
``If-None-Match: *`` creates the object only if it does not exist, ``If-Match`` replaces
or deletes only the object that was read (S3 User Guide, "Conditional writes", "Conditional
deletes"). A lock whose holder died is taken over when it expires, by S3's clock, not by this
machine's.
"""

import getpass
import json
import os
import secrets
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

from botocore.exceptions import ClientError

from pipelines.compile.compilation import CompiledPipeline
from trainyard.aws_clients import read_error_code
from trainyard.common.errors import PlanError
from trainyard.plan.deployed_pipeline import State
from trainyard.terminal import console

# Records of applied upserts: one object each, named by the fingerprint of the deployed state, and
# written before the pipeline is updated.
#
#     s3://<bucket>/<prefix>/<pipeline>/definitions/<fingerprint>.json
#
# A deployed state without a record was not deployed by upsert. This is called drift.

LOCK = "lock"


@dataclass(frozen=True, slots=True)
class RecordsLocation:
    """S3 location of a pipeline's records and its lock."""

    bucket: str
    prefix: str
    """Key prefix, without a slash at the end."""

    kms_key: str | None = None

    def build_key(self, name: str) -> str:
        """Return the key of the object ``name``."""
        return f"{self.prefix}/{name}"

    @property
    def encryption(self) -> dict[str, str]:
        """Return the encryption arguments of PutObject."""
        if not self.kms_key:
            return {}
        return {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": self.kms_key}


@dataclass(frozen=True, slots=True)
class Records:
    """The records that were found at a location."""

    times: Mapping[str, datetime]
    """Time when each fingerprint was last recorded."""

    is_locked: bool
    """True if an upsert is running, or was interrupted."""

    @property
    def last(self) -> str | None:
        """Return the fingerprint that was recorded last; None if there is none."""
        return max(self.times, key=self.times.__getitem__, default=None)


def locate_records(definition: CompiledPipeline) -> RecordsLocation:
    """Return the location of the pipeline's records: ``<root>/definitions/…``, next to its code in
    ``<root>/code/…``.
    """
    asset = definition.assets[0]
    root = asset.prefix.removesuffix("/code")
    return RecordsLocation(asset.bucket, f"{root}/definitions", definition.kms_key)


def list_records(s3: Any, location: RecordsLocation) -> Records:
    """List the records at ``location``; return none if the bucket does not exist yet.

    Raises:
        ClientError: AWS refused.
    """
    pages = s3.get_paginator("list_objects_v2")
    try:
        objects = [
            item
            for page in pages.paginate(Bucket=location.bucket, Prefix=location.build_key(""))
            for item in page.get("Contents", ())
        ]
    except ClientError as error:
        if read_error_code(error) == "NoSuchBucket":
            return Records({}, False)
        raise
    names = {
        item["Key"].removeprefix(location.build_key("")): item["LastModified"] for item in objects
    }
    times = {
        n.removesuffix(".json"): timestamp for n, timestamp in names.items() if n.endswith(".json")
    }
    return Records(times, LOCK in names)


def write_record(s3: Any, location: RecordsLocation, state: State) -> None:
    """Record ``state``; an existing record is written again, so that it becomes the latest.

    Raises:
        ClientError: AWS refused.
    """
    s3.put_object(
        Bucket=location.bucket,
        Key=location.build_key(f"{state.fingerprint}.json"),
        Body=json.dumps(state.as_json(), indent=1).encode(),
        **location.encryption,
    )


def read_record(s3: Any, location: RecordsLocation, fingerprint: str) -> State:
    """Return the state that was recorded under ``fingerprint``.

    Raises:
        ClientError: AWS refused.
        PlanError: the object was damaged or edited.
    """
    key = location.build_key(f"{fingerprint}.json")
    body = s3.get_object(Bucket=location.bucket, Key=key)["Body"].read()
    try:
        state = State(**json.loads(body))
        if state.fingerprint == fingerprint:
            return state
    except (ValueError, TypeError):
        pass  # refused below
    raise PlanError(
        f"s3://{location.bucket}/{key}: is not the record that upsert wrote there: damaged or "
        "edited; delete it"
    )


LOST_RACE = ("PreconditionFailed", "ConditionalRequestConflict", "NoSuchKey")
"""Error codes of a conditional request if another process was faster: HTTP 412, 409, 404."""

ATTEMPTS = 5  # the lock's holder may change between a refused write and reading who it is


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that holds a lock, since when and until when."""

    id: str
    owner: str
    since: datetime
    until: datetime
    is_expired: bool
    etag: str


class Lock:
    """The lock of a pipeline, which this process can take; ``hold_lock`` takes and releases it."""

    def __init__(self, s3: Any, location: RecordsLocation, pipeline: str, seconds: float) -> None:
        self._s3 = s3
        self._location = location
        self._pipeline = pipeline
        self._seconds = seconds
        self._id = secrets.token_hex(8)
        self._etag = ""
        self._target = {"Bucket": location.bucket, "Key": location.build_key(LOCK)}

    def take(self) -> None:
        """Take the lock; an expired lock is taken over from its holder.

        Raises:
            PlanError: another process holds it; says who, since when and until when.
        """
        for _ in range(ATTEMPTS):
            if self._write(IfNoneMatch="*"):
                return
            holder = self.read_holder()
            if holder is None:
                continue
            if not holder.is_expired:
                raise PlanError(self._describe_holder(holder))
            # If-Match: if two processes see that the lock has expired, only one of them takes it
            # over.
            if self._write(IfMatch=holder.etag):
                console.print(f"took over the expired lock of {holder.owner}")
                return
        raise PlanError(f"pipeline {self._pipeline}: others keep taking its lock; try again")

    def renew(self) -> None:
        """Hold the lock for the full time from now; call this before an action that needs the lock.

        Raises:
            PlanError: the lock expired, and another process took it over.
        """
        if not self._write(IfMatch=self._etag):
            holder = self.read_holder()
            raise PlanError(
                f"pipeline {self._pipeline}: this upsert took longer than its lock lasts "
                f"({self._seconds:g} s), and {holder.owner if holder else 'another process'} took "
                "over; nothing was changed: try again with a longer --lock-seconds"
            )

    def release(self) -> None:
        """Release the lock; do nothing if another process has taken it over."""
        try:
            self._s3.delete_object(**self._target, IfMatch=self._etag)
        except ClientError as error:
            if not self._is_late(error):
                raise

    def read_holder(self) -> Holder | None:
        """Return the holder of the lock; None if it is free."""
        try:
            answer = self._s3.get_object(**self._target)
        except ClientError as error:
            if read_error_code(error) == "NoSuchBucket" or self._is_late(error):
                return None
            raise
        lock_record = self._parse_record(answer["Body"].read())
        # Last-Modified is in whole seconds: add one, so that no holder loses the lock too early.
        until = answer["LastModified"] + timedelta(seconds=lock_record["seconds"] + 1)
        # Use S3's clock, like Last-Modified does: this machine's may be wrong.
        now = parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])
        since = answer["LastModified"]
        return Holder(
            lock_record["id"], lock_record["holder"], since, until, until <= now, answer["ETag"]
        )

    def _parse_record(self, body: bytes) -> dict[str, Any]:
        """Return the content of the lock object; raise PlanError if upsert did not write it."""
        try:
            lock_record = json.loads(body)
            return {
                "id": lock_record["id"],
                "holder": lock_record["holder"],
                "seconds": float(lock_record["seconds"]),
            }
        except (ValueError, KeyError, TypeError):
            lock_uri = f"s3://{self._target['Bucket']}/{self._target['Key']}"
            raise PlanError(
                f"pipeline {self._pipeline}: {lock_uri} is not a lock of upsert: {body[:60]!r}; "
                "find out whose it is, and delete it"
            ) from None

    def _write(self, **condition: str) -> bool:
        """Write the lock object under ``condition``; return whether the lock is now ours."""
        body = {"id": self._id, "holder": identify_process(), "seconds": self._seconds}
        try:
            answer = self._s3.put_object(
                **self._target,
                Body=json.dumps(body).encode(),
                **condition,
                **self._location.encryption,
            )
        except ClientError as error:
            first = "IfNoneMatch" in condition
            if (first and _is_denied(error)) or not self._is_late(error):
                raise
            # botocore may have retried a request that had succeeded in S3. Then the retry is
            # refused, but the lock is ours.
            holder = self.read_holder()
            if holder is None or holder.id != self._id:
                return False
            self._etag = holder.etag
            return True
        self._etag = answer["ETag"]
        return True

    def _is_late(self, error: ClientError) -> bool:
        """Return whether the error means that another process wrote or removed the lock first."""
        if read_error_code(error) in LOST_RACE:
            return True
        # For an object that does not exist, a role that may list only some prefixes gets 403, not
        # 404 (API page of GetObject: 404 needs s3:ListBucket).
        return _is_denied(error) and not list_records(self._s3, self._location).is_locked

    def _describe_holder(self, holder: Holder) -> str:
        lock_uri = f"s3://{self._target['Bucket']}/{self._target['Key']}"
        return (
            f"pipeline {self._pipeline}: {holder.owner} has been upserting it since "
            f"{holder.since:%H:%M:%S} UTC; nothing was changed. Plan again when that upsert has "
            f"finished. If its process died, the lock expires at {holder.until:%H:%M:%S} UTC "
            f"({lock_uri})"
        )


@contextmanager
def hold_lock(s3: Any, location: RecordsLocation, pipeline: str, seconds: float) -> Iterator[Lock]:
    """Hold the pipeline's lock inside the block; it lasts ``seconds``, or until it is renewed.

    Raises:
        PlanError: another process holds it.
        ClientError: AWS refused.
    """
    lock = Lock(s3, location, pipeline, seconds)
    lock.take()
    try:
        yield lock
    finally:
        lock.release()


def _is_denied(error: ClientError) -> bool:
    return read_error_code(error) in ("AccessDenied", "403")


def identify_process() -> str:
    """Return the id of the CodeBuild build, or ``user@host (process N)``."""
    if build := os.environ.get("CODEBUILD_BUILD_ID"):
        return build
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # in a container, a user id may have no name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()} (process {os.getpid()})"
