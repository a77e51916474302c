"""What lies at a URI in S3 now, and the code there: read once, and no more than a page needs."""

from bisect import bisect_right
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from trainyard.console.account import Account
from trainyard.plan.listing import MOST, listed
from trainyard.runs.comparing.archives import (
    LARGEST,
    LARGEST_TEXT,
    Contents,
    Mark,
    contents,
    file,
    sha256,
)
from trainyard.service import error_code

SECONDS = 60.0
"""For which a listing is good; what was downloaded is known by its ETag, and good for an hour."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The objects at a URI."""

    objects: dict[str, Mark]
    """Key behind the folder → size and ETag."""
    modified: tuple[datetime, ...] = ()
    """When each was written, in order."""
    keys: tuple[str, ...] = ()
    """Whole keys, in the order of ``objects``."""
    fault: str = ""
    """Why nobody can tell what lies there."""

    @property
    def is_cut(self) -> bool:
        """Whether there may be more."""
        return len(self.objects) >= MOST

    def since(self, when: datetime | None) -> int:
        """Objects that were written after ``when``."""
        return len(self.modified) - bisect_right(self.modified, when) if when else 0


def listing(here: Account, uri: str) -> Listing:
    """What lies at ``uri``; where S3 refuses, why."""
    return here.lately(("compare: listing", uri), lambda: _listing(here, uri), SECONDS)


def _listing(here: Account, uri: str) -> Listing:
    try:
        found = listed(here.s3, uri)
    except ClientError as error:
        return Listing({}, fault=f"it cannot be listed ({error_code(error)})")
    except BotoCoreError as error:
        return Listing({}, fault=f"it cannot be listed ({error})")
    prefix = uri.removeprefix("s3://").partition("/")[2].rstrip("/")
    return Listing(
        {_behind(item["Key"], prefix): _mark(item) for item in found},
        tuple(sorted(item["LastModified"] for item in found if "LastModified" in item)),
        tuple(item["Key"] for item in found),
    )


def _behind(key: str, prefix: str) -> str:
    return key.removeprefix(prefix).lstrip("/") or key.rpartition("/")[2]


def _mark(item: dict[str, Any]) -> Mark:
    return Mark(item.get("Size", 0), item.get("ETag", "").strip('"'))


def is_archive(uri: str) -> bool:
    """Whether code at ``uri`` is packed."""
    return uri.endswith((".tar.gz", ".tgz", ".tar"))


def code(here: Account, uri: str) -> Contents:
    """The files of the code at ``uri``: a folder's objects, or what an archive holds."""
    found = listing(here, uri)
    if found.fault or not found.objects:
        return Contents({}, found.fault or "nothing lies there any more")
    if not is_archive(uri):
        return Contents(found.objects, f"only {MOST:,} files were looked at" * found.is_cut)
    mark = next(iter(found.objects.values()))
    if mark.size > LARGEST:
        return Contents({}, f"the archive has more than {LARGEST:,} bytes")
    key = ("compare: archive", uri, mark.digest)
    return here.lately(key, lambda: contents(_object(here, uri, LARGEST)), 3_600)


def content(here: Account, uri: str, name: str) -> bytes | None:
    """One file of the code at ``uri``, as far as it can be shown; None where it is not there."""
    found = listing(here, uri)
    if not found.objects:
        return None
    if is_archive(uri):
        return file(_object(here, uri, LARGEST), name)
    keys = dict(zip(found.objects, found.keys, strict=True))
    if name not in keys:
        return None
    bucket = uri.removeprefix("s3://").partition("/")[0]
    return _object(here, f"s3://{bucket}/{keys[name]}", LARGEST_TEXT + 1)


def hashed(here: Account, uri: str, name: str, mark: Mark) -> Mark:
    """The mark of a file by its content, where it was its ETag and the file is not too large."""
    if len(mark.digest) == 64 or mark.size > LARGEST_TEXT:
        return mark
    found = here.lately(
        ("compare: hashed", uri, name, mark.digest), lambda: content(here, uri, name), 3_600
    )
    return mark if found is None else Mark(len(found), sha256(found))


def _object(here: Account, uri: str, most: int) -> bytes:
    """At most so many bytes of an object; none of one that is gone."""
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    try:
        with here.s3.get_object(Bucket=bucket, Key=key)["Body"] as body:
            found: bytes = body.read(most)
    except (ClientError, BotoCoreError):  # the listing says what is the matter
        return b""
    return found
