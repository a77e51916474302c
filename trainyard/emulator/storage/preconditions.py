"""Preconditions, ranges and numbers in requests."""

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from werkzeug.datastructures import Headers

from trainyard.emulator.api import ApiError, S3Error
from trainyard.emulator.storage.object_store import Check, ObjectInfo

READS = "if-match if-none-match if-modified-since if-unmodified-since range"
"""Headers that :func:`check_reading` and :func:`range_of` read."""
SOURCE = "x-amz-copy-source-"
"""Prefix of each condition on the source of a copy."""
_MOST = 10**18  # stands for all larger numbers


def check_reading(headers: Headers, info: ObjectInfo, prefix: str = "") -> bool:
    """Return whether the client already has this object, which is a 304 on GET.

    ``prefix`` precedes each header's name. Raises ``PreconditionFailed`` as in RFC 9110, 13.2.2.
    """
    match = headers.get(f"{prefix}If-Match")
    unmodified_since = _date(headers.get(f"{prefix}If-Unmodified-Since"))
    moment = info.last_modified.replace(microsecond=0)
    if match is not None:
        has_failed = not names(match, info.etag)
    else:
        has_failed = unmodified_since is not None and moment > unmodified_since
    if has_failed:
        condition = "If-Match" if match is not None else "If-Unmodified-Since"
        raise precondition_failed(condition, prefix)
    none_match = headers.get(f"{prefix}If-None-Match")
    if none_match is not None:
        return names(none_match, info.etag)
    modified_since = _date(headers.get(f"{prefix}If-Modified-Since"))
    return modified_since is not None and moment <= modified_since


def check_source(headers: Headers, info: ObjectInfo) -> None:
    """Raise ``PreconditionFailed`` if the source of a copy does not meet the client's
    conditions.
    """
    if check_reading(headers, info, SOURCE):
        has_none_match = f"{SOURCE}If-None-Match" in headers
        raise precondition_failed(
            "If-None-Match" if has_none_match else "If-Modified-Since", SOURCE
        )


def check_of_write(headers: Headers) -> Check:
    """Return the check of If-Match and ``If-None-Match: *`` on the object that a write replaces.

    Raises ``NotImplemented`` for combinations that S3 also refuses.
    """
    match, none_match = headers.get("If-Match"), headers.get("If-None-Match")
    if match is not None and none_match is not None:
        message = "If-Match and If-None-Match cannot be combined in one write."
        raise ApiError("NotImplemented", message, 501)
    if none_match not in (None, "*"):
        raise ApiError("NotImplemented", "If-None-Match on a write accepts only '*'.", 501)

    def check(current: ObjectInfo | None) -> None:
        if current and none_match:
            raise precondition_failed("If-None-Match")
        if match is not None:
            need_match(match, current)

    return check


def check_of_delete(
    match: str | None, modification_time: str | None = None, size: str | None = None
) -> Check:
    """Return the check of a delete's conditions on the object: its ETag, time and size.

    Raises ``NotImplemented`` for time and size, which are only for directory buckets.
    """
    for name, value in (("last modified time", modification_time), ("size", size)):
        if value is not None:
            message = f"A condition on the {name} is for directory buckets, which are not here."
            raise ApiError("NotImplemented", message, 501)

    def check(info: ObjectInfo | None) -> None:
        if match is not None:
            need_match(match, info)

    return check


def need_match(match: str, current: ObjectInfo | None) -> None:
    """Raise ``NoSuchKey``, or ``PreconditionFailed`` if the ETag differs."""
    if current is None or current.marker:
        raise ApiError("NoSuchKey", "The specified key does not exist.", 404)
    if not names(match, current.etag):
        raise precondition_failed("If-Match")


def range_of(header: str | None, size: int) -> tuple[int, int] | None:
    """Return (first byte, one past the last); None if the header means the whole object.

    A missing or malformed header does (RFC 9110). Raises ``InvalidRange`` past the end.
    """
    match = re.fullmatch(r"bytes=([0-9]*)-([0-9]*)", (header or "").strip())
    if not match or match.groups() == ("", ""):
        return None
    first, last = (_number(text) for text in match.groups())
    if first is None:
        start, stop = max(size - (last or 0), 0), size
    elif last is not None and last < first:
        return None
    else:
        start, stop = first, size if last is None else min(last + 1, size)
    if start >= size:
        fields = {"RangeRequested": header or "", "ActualObjectSize": str(size)}
        message = "The requested range is not satisfiable"
        raise S3Error("InvalidRange", message, 416, fields=fields)
    return start, stop


def source_range(header: str | None, size: int) -> tuple[int, int]:
    """Return the range of a copy's source: all bytes, or a range within them.

    Raises ``InvalidArgument``: S3 is stricter here than on a GET.
    """
    if header is None:
        return 0, size
    match = re.fullmatch(r"bytes=([0-9]+)-([0-9]+)", header.strip())
    first, last = (_number(text) for text in match.groups()) if match else (None, None)
    if first is None or last is None or last < first:
        message = "The x-amz-copy-source-range value must be of the form bytes=first-last where "
        raise ApiError("InvalidArgument", message + _OFFSETS)
    if last >= size:
        message = f"Range specified is not valid for source object of size: {size}"
        raise ApiError("InvalidArgument", message)
    return first, last + 1


_OFFSETS = "first and last are the zero-based offsets of the first and last bytes to copy"


def number(text: str | None, name: str, default: int, low: int = 0, high: int = 2**31 - 1) -> int:
    """Return a number from a query or header, ``default`` if it is missing.

    Raises ``InvalidArgument`` for text that is not a number from ``low`` to ``high``.
    """
    if text is None:
        return default
    if not re.fullmatch("[0-9]{1,10}", text) or not low <= int(text) <= high:
        message = f"Argument {name} must be an integer between {low} and {high}, not {text[:40]!r}"
        raise ApiError("InvalidArgument", message)
    return int(text)


def _number(digits: str) -> int | None:
    if not digits:
        return None
    return int(digits) if len(digits) <= 18 else _MOST


def _date(text: str | None) -> datetime | None:
    """Return the date; None for an invalid one: such a condition is ignored (RFC 9110, 13.1.3)."""
    if text is None:
        return None
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def names(header: str, etag: str) -> bool:
    """Return whether an If-Match or If-None-Match header names the ETag; ``*`` names any."""
    return header.strip() == "*" or etag in [tag.strip(' "') for tag in header.split(",")]


def precondition_failed(condition: str, prefix: str = "") -> S3Error:
    message = "At least one of the pre-conditions you specified did not hold"
    return S3Error("PreconditionFailed", message, 412, fields={"Condition": prefix + condition})
