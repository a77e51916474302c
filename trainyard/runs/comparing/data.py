"""Whether two runs had the same data: what lies at each one's URI, and whether they read that.

S3 keeps no record of what a job read. What lies at the URI now is what it read when no object there
is newer than its start; objects that were deleted since leave no trace in a listing.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from trainyard.runs.comparing.archives import Mark
from trainyard.runs.comparing.differences import Value


@dataclass(frozen=True, slots=True)
class Print:
    """The fingerprint of the objects at a URI."""

    uri: str
    count: int
    size: int
    digest: str
    """SHA-256 over names behind the URI, sizes and ETags."""
    names: str
    """SHA-256 over names and sizes."""
    in_parts: bool
    """Whether an ETag is of an upload in parts: the same bytes may then have another ETag."""
    fault: str = ""
    """Why nobody can tell what the run read."""


def fingerprint(uri: str, objects: Mapping[str, Mark], fault: str = "") -> Print:
    """Of the objects at ``uri``, by their names behind it."""
    items = sorted((name, mark.size, mark.digest) for name, mark in objects.items())
    return Print(
        uri=uri,
        count=len(items),
        size=sum(size for _, size, _ in items),
        digest=_digest(items),
        names=_digest([(name, size) for name, size, _ in items]),
        in_parts=any("-" in etag for _, _, etag in items),
        fault=fault,
    )


def _digest(items: Sequence[tuple[object, ...]]) -> str:
    return hashlib.sha256(json.dumps(items).encode()).hexdigest()


def values(prints: Sequence[Print | None]) -> list[Value | None]:
    """The runs' fingerprints of one input as values that can be compared."""
    doubtful = _doubtful([one for one in prints if one is not None and not one.fault])
    return [None if one is None else _value(one, one.names in doubtful) for one in prints]


def _doubtful(prints: Sequence[Print]) -> set[str]:
    """Names and sizes that two have in common whose ETags differ, and may for the same bytes."""
    digests: dict[str, set[str]] = {}
    for one in prints:
        digests.setdefault(one.names, set()).add(one.digest)
    in_parts = {one.names for one in prints if one.in_parts}
    return {names for names, found in digests.items() if len(found) > 1} & in_parts


def _value(one: Print, is_doubtful: bool) -> Value:
    if one.fault:
        return Value(f"{one.uri}\ncannot be known: {one.fault}", "", known=False)
    objects = "object" if one.count == 1 else "objects"
    said = f"{one.uri}\n{one.count:,} {objects}, {one.size:,} bytes, digest {one.digest[:12]}"
    found = Value(said, one.digest, float(one.size))
    if not is_doubtful:
        return found
    doubt = "names and sizes are the same, ETags of uploads in parts tell nothing"
    return replace(found, text=f"{said}\ncannot be known: {doubt}", known=False)
