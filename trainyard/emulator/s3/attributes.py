"""GetObjectAttributes: what is known of an object, without its bytes."""

from dataclasses import dataclass

from werkzeug import Request
from werkzeug.http import http_date

from trainyard.emulator.api import ApiError
from trainyard.emulator.objects import ObjectInfo, ObjectStore
from trainyard.emulator.s3 import xml
from trainyard.emulator.s3.checksums import PREFIX, TYPE
from trainyard.emulator.s3.conditions import number
from trainyard.emulator.s3.kept import STORAGE, sums
from trainyard.emulator.s3.objects import elements, version_header
from trainyard.emulator.s3.routes import operation
from trainyard.emulator.s3.xml import Response

_ASKED = "x-amz-object-attributes"
_KNOWN = ("ETag", "Checksum", "ObjectParts", "StorageClass", "ObjectSize")
_PAGE = 1000


@dataclass(frozen=True, slots=True)
class Attributes:
    store: ObjectStore

    @operation(
        "GetObjectAttributes",
        heeds=f"versionId {_ASKED} x-amz-max-parts x-amz-part-number-marker",
    )
    def get(self, request: Request, bucket: str, key: str) -> Response:
        info = self.store.head(bucket, key, request.args.get("versionId"))
        asked = [each.strip() for each in ",".join(request.headers.getlist(_ASKED)).split(",")]
        if not set(asked) <= set(_KNOWN):
            raise ApiError("InvalidArgument", "Invalid attribute name specified.")
        tree = []
        for name in _KNOWN:
            value = _value(name, request, info) if name in asked else None
            if value is not None:
                tree.append((name, value))
        headers = {"Last-Modified": http_date(info.last_modified), **version_header(info)}
        response = xml.document("GetObjectAttributesResponse", tree)
        response.headers.extend(headers)
        return response


def _value(name: str, request: Request, info: ObjectInfo) -> str | int | list | None:
    if name == "ETag":
        return info.etag
    if name == "StorageClass":
        return info.headers.get(STORAGE, "STANDARD")
    if name == "ObjectSize":
        return info.size
    if name == "Checksum":
        found = sums(info)
        if not found:
            return None
        whole = {k: v if k == TYPE else v.partition("-")[0] for k, v in found.items()}
        return elements(whole | ({} if TYPE in found else {TYPE: "FULL_OBJECT"}))
    return _parts(request, info) if info.parts else None


def _parts(request: Request, info: ObjectInfo) -> list:
    """S3 lists the parts themselves only where they have checksums; here they always are."""
    headers = request.headers
    after = number(headers.get("x-amz-part-number-marker"), "part-number-marker", 0)
    limit = min(number(headers.get("x-amz-max-parts"), "max-parts", _PAGE), _PAGE)
    chosen = list(enumerate(info.parts, 1))[after : after + limit]
    tree: list = [("PartsCount", len(info.parts)), ("PartNumberMarker", after)]
    if chosen:
        tree.append(("NextPartNumberMarker", chosen[-1][0]))
    tree += [("MaxParts", limit), ("IsTruncated", after + len(chosen) < len(info.parts))]
    for place, part in chosen:
        found = {k: v for k, v in part.items() if k.startswith(PREFIX)}
        tree.append(("Part", [*elements(found), ("PartNumber", place), ("Size", part["size"])]))
    return tree
