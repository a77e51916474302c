"""Data stored with an object beside its bytes: returned headers, metadata, tags."""

import re
from collections.abc import Mapping
from urllib.parse import parse_qsl, quote

from werkzeug.datastructures import Headers

from trainyard.emulator.api import ApiError, S3Error
from trainyard.emulator.storage.checksums import PREFIX
from trainyard.emulator.storage.object_store import ObjectInfo

META = "x-amz-meta-"
ACL = "x-amz-acl"
TAGS = "x-amz-tagging"
STORAGE = "x-amz-storage-class"
_PLAIN = (  # returned by GET and HEAD as they were put
    "Content-Type",
    "Content-Disposition",
    "Content-Language",
    "Cache-Control",
    "Expires",
)
_SPECIAL = (  # returned, too, if the value is one that can be kept
    TAGS,
    STORAGE,
    "x-amz-website-redirect-location",
    "x-amz-server-side-encryption",
    "x-amz-server-side-encryption-aws-kms-key-id",
    "x-amz-server-side-encryption-bucket-key-enabled",
)
WRITING = {
    ACL,
    f"{META}*",
    "content-encoding",
    *(n.lower() for n in (*_PLAIN, *_SPECIAL)),
}
"""Headers of a write that :func:`kept` respects."""
_HIDDEN = (TAGS, ACL)  # ACL: of objects that an emulator before 2026-11-24 wrote

_FRAMING = re.compile(r"(^|,)\s*aws-chunked\s*(?=,|$)")
_CLASSES = "STANDARD REDUCED_REDUNDANCY STANDARD_IA ONEZONE_IA INTELLIGENT_TIERING GLACIER_IR"
"""Storage classes whose objects can be read at once, like all of ours."""
_ARCHIVES = "GLACIER DEEP_ARCHIVE SNOW OUTPOSTS EXPRESS_ONEZONE FSX_OPENZFS FSX_ONTAP"
_OWNERS = "private bucket-owner-read bucket-owner-full-control"
_ENCRYPTIONS = "AES256 aws:kms aws:kms:dsse"
_MOST_METADATA = 2048  # bytes of all names and values (S3's limit)
_MOST_TAGS, _LONGEST_KEY, _LONGEST_VALUE = 10, 128, 256  # S3's limits of an object's tags


def stored_headers(request_headers: Headers) -> tuple[dict[str, str], dict[str, str]]:
    """Return (headers, metadata) to store with the object. Refuse values that cannot be
    honoured.
    """
    headers = {
        name: request_headers[name] for name in (*_PLAIN, *_SPECIAL) if name in request_headers
    }
    encoding = _FRAMING.sub("", request_headers.get("Content-Encoding", "")).strip(", ")
    if encoding:
        headers["Content-Encoding"] = encoding
    headers.setdefault("Content-Type", "binary/octet-stream")  # S3's own default
    _check_class(headers)
    _check_encryption(headers)
    check_acl(request_headers)
    if TAGS in headers:
        _check_tag_header(headers[TAGS], tags_of(headers))
    return headers, metadata_of(request_headers)


def check_acl(request_headers: Headers) -> None:
    """Raise ``NotImplemented`` for a canned list that gives others access."""
    if (acl := request_headers.get(ACL)) not in (None, *_OWNERS.split()):
        raise _unimplemented_error(f"{ACL} {acl}")


def metadata_of(request_headers: Headers) -> dict[str, str]:
    """Return the user metadata. Raises ``MetadataTooLarge`` as S3 does."""
    metadata = {
        k[len(META) :].lower(): v for k, v in request_headers.items() if k.lower().startswith(META)
    }
    size = sum(len(k) + len(v) for k, v in metadata.items())
    if size > _MOST_METADATA:
        message = "Your metadata headers exceed the maximum allowed metadata size"
        fields = {"Size": str(size), "MaxSizeAllowed": str(_MOST_METADATA)}
        raise S3Error("MetadataTooLarge", message, fields=fields)
    return metadata


def sums(info: ObjectInfo) -> dict[str, str]:
    return {k: v for k, v in info.headers.items() if k.startswith(PREFIX)}


def response_headers(info: ObjectInfo) -> dict[str, str]:
    """Return the stored headers for the answer to GET or HEAD, without checksums."""
    headers = {k: v for k, v in info.headers.items() if not k.startswith(PREFIX)}
    headers = {k: v for k, v in headers.items() if k not in _HIDDEN}
    if tags := tags_of(info.headers):
        headers["x-amz-tagging-count"] = str(len(tags))
    return headers


def tags_of(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return (key, value) of each tag, in the order in which they were put."""
    return parse_qsl(headers.get(TAGS, ""), keep_blank_values=True)


def with_tags(headers: Mapping[str, str], tags: list[tuple[str, str]]) -> dict[str, str]:
    """Return the headers with ``tags`` in place of their own tags."""
    rest = {k: v for k, v in headers.items() if k != TAGS}
    text = "&".join(f"{quote(k, safe='')}={quote(v, safe='')}" for k, v in tags)
    return rest | ({TAGS: text} if tags else {})


def check_tags(tags: list[tuple[str, str]], most: int = _MOST_TAGS) -> None:
    """Raise ``InvalidTag`` or ``BadRequest`` as S3 does; ``most`` is 50 for a bucket."""
    names = [key for key, _ in tags]
    if len(tags) > most:
        kind = "Object" if most == _MOST_TAGS else "Bucket"
        message = f"{kind} tags cannot be greater than {most}"
        raise ApiError("BadRequest" if most == _MOST_TAGS else "InvalidTag", message)
    if len(set(names)) < len(names):
        twice = {"TagKey": next(name for name in names if names.count(name) > 1)}
        message = "Cannot provide multiple Tags with the same key"
        raise S3Error("InvalidTag", message, fields=twice)
    for key, value in tags:
        fields = {"TagKey": key, "TagValue": value}
        if not 1 <= len(key) <= _LONGEST_KEY or not _TAG.fullmatch(key):
            raise S3Error("InvalidTag", "The TagKey you have provided is invalid", fields=fields)
        if len(value) > _LONGEST_VALUE or not _TAG.fullmatch(value):
            raise S3Error("InvalidTag", "The TagValue you have provided is invalid", fields=fields)
        if key.startswith("aws:"):
            prefix_message = "Your TagKey cannot be prefixed with aws:"
            other = "System tags cannot be added/updated by requester"
            raise ApiError("InvalidTag", prefix_message if most == _MOST_TAGS else other)


def _check_tag_header(header: str, tags: list[tuple[str, str]]) -> None:
    if len({key for key, _ in tags}) < len(tags):
        fields = {"ArgumentName": TAGS, "ArgumentValue": header}
        message = (
            f"The header '{TAGS}' shall be encoded as UTF-8 then URLEncoded URL query parameters "
            "without tag name duplicates."
        )
        raise S3Error("InvalidArgument", message, fields=fields)
    check_tags(tags)


_TAG = re.compile(r"[\w\s.:/=+\-@]*")
"""Letters, digits, spaces and a few signs may stand in a tag."""


def _check_class(headers: dict[str, str]) -> None:
    """Raise ``InvalidStorageClass``, or ``NotImplemented`` for archives, which need a restore."""
    storage_class = headers.get(STORAGE, "STANDARD")
    if storage_class in _ARCHIVES.split():
        raise _unimplemented_error(f"the storage class {storage_class}")
    if storage_class not in _CLASSES.split():
        raise ApiError("InvalidStorageClass", "The storage class you specified is not valid")
    if storage_class == "STANDARD":
        headers.pop(STORAGE, None)  # S3 names every class but this one


def _check_encryption(headers: dict[str, str]) -> None:
    encryption = headers.get("x-amz-server-side-encryption", "AES256")
    if encryption not in _ENCRYPTIONS.split():
        raise ApiError("InvalidArgument", "The encryption method specified is not supported")


def _unimplemented_error(feature: str) -> ApiError:
    return ApiError("NotImplemented", f"The emulator's S3 does not implement {feature}.", 501)
