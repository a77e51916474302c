"""What lies at an S3 URI: how many objects of what size, and the first megabyte of one."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from botocore.exceptions import ClientError

from trainyard.common.errors import ServiceError
from trainyard.console.account import Account
from trainyard.service import error_code, service_errors

KEYS = 1_000
"""Objects that one listing looks at: as many as ListObjectsV2 answers at once."""

BYTES = 1 << 20
"""Of an object, from its beginning."""

_URI = re.compile(r"s3://(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(?P<key>.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Location:
    """A bucket, and a key or a prefix in it."""

    bucket: str
    key: str

    @property
    def uri(self) -> str:
        """``s3://bucket/key``."""
        return f"s3://{self.bucket}/{self.key}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Object:
    """One object of a listing."""

    uri: str
    name: str
    """Its key, without what all in the listing have in common."""

    size: int
    modified: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The first objects at a URI."""

    at: Location
    objects: tuple[Object, ...]
    more: bool
    """Whether there are more than were listed."""

    @property
    def size(self) -> int:
        """Bytes of those that were listed."""
        return sum(one.size for one in self.objects)


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """The first bytes of an object."""

    at: Location
    data: bytes
    size: int
    """Of the whole object."""

    modified: datetime | None
    further: Callable[[int, int], bytes] | None = None
    """(start, stop) → those bytes of the object, which are asked for."""

    @property
    def is_whole(self) -> bool:
        """Whether nothing is missing."""
        return len(self.data) >= self.size


def location(uri: str) -> Location:
    """The place that ``uri`` names.

    Raises:
        ServiceError: it is no S3 URI.
    """
    found = _URI.fullmatch(uri)
    if found is None:
        raise ServiceError(f"{uri!r}: expected an S3 URI such as s3://bucket/folder/file")
    return Location(found["bucket"], found["key"] or "")


def listing(here: Account, uri: str, after: str = "") -> Listing:
    """The object at ``uri``, or those in the folder, or else those whose keys begin so.

    Args:
        after: a key; only what comes after it is listed.

    Raises:
        ServiceError: ``uri`` is none, there is no such bucket, or AWS refused.
    """
    at = location(uri)
    folder = at.key if not at.key or at.key.endswith("/") else f"{at.key}/"
    found = _listed(here, at, folder, after)
    if not found.objects and folder != at.key:
        found = _listed(here, at, at.key, after)
    return found


def _listed(here: Account, at: Location, prefix: str, after: str) -> Listing:
    more = {"StartAfter": after} if after else {}
    with service_errors(f"listing {at.uri}"):
        answer = here.s3.list_objects_v2(Bucket=at.bucket, Prefix=prefix, MaxKeys=KEYS, **more)
    common = prefix.rpartition("/")[0] + "/" if "/" in prefix else ""
    found = (_object(at.bucket, item, common) for item in answer.get("Contents", []))
    return Listing(at=at, objects=tuple(found), more=bool(answer.get("IsTruncated")))


def _object(bucket: str, item: dict[str, Any], common: str) -> Object:
    key = item.get("Key", "")
    return Object(
        uri=f"s3://{bucket}/{key}",
        name=key.removeprefix(common) or key,
        size=item.get("Size", 0),
        modified=item.get("LastModified"),
    )


def beginning(here: Account, uri: str) -> Beginning | None:
    """The first :data:`BYTES` of the object at ``uri``; None where there is no such object.

    Raises:
        ServiceError: ``uri`` is none, AWS refused, or the object is archived.
    """
    at = location(uri)
    if not at.key:
        return None
    with service_errors(f"reading {uri}"):
        try:
            return _read(here, at)
        except ClientError as error:
            if error_code(error) == "InvalidRange":  # an object without a byte has no range
                return Beginning(at=at, data=b"", size=0, modified=None)
            if error_code(error) in ("NoSuchKey", "404"):
                return None
            raise


def _read(here: Account, at: Location) -> Beginning:
    answer = here.s3.get_object(Bucket=at.bucket, Key=at.key, Range=f"bytes=0-{BYTES - 1}")
    with answer["Body"] as body:
        data = body.read(BYTES)
    whole = answer.get("ContentRange", "").rpartition("/")[2]  # bytes 0-99/1234
    size = int(whole) if whole.isdigit() else answer.get("ContentLength", len(data))
    version = answer.get("ETag", "")

    def further(start: int, stop: int) -> bytes:
        return _part(here, at, version, start, stop)

    modified = answer.get("LastModified")
    return Beginning(at=at, data=data, size=size, modified=modified, further=further)


def _part(here: Account, at: Location, version: str, start: int, stop: int) -> bytes:
    """Some bytes of the object, if it is still the one of which the beginning was read."""
    only = {"IfMatch": version} if version else {}
    with service_errors(f"reading {at.uri}"):
        answer = here.s3.get_object(
            Bucket=at.bucket, Key=at.key, Range=f"bytes={start}-{stop - 1}", **only
        )
        with answer["Body"] as body:
            return bytes(body.read(stop - start))
