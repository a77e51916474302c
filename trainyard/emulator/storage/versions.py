"""A bucket's versioning: its setting, and the listing of all versions."""

from dataclasses import dataclass, field

from werkzeug import Request

from trainyard.emulator.api import ApiError, S3Error
from trainyard.emulator.storage import s3_xml
from trainyard.emulator.storage.checksums import PREFIX
from trainyard.emulator.storage.list_objects import LIMIT, encode, of_checksums, roll_up
from trainyard.emulator.storage.object_headers import STORAGE
from trainyard.emulator.storage.object_index import seq_of
from trainyard.emulator.storage.object_store import VERSIONING, ObjectInfo, ObjectStore, successor
from trainyard.emulator.storage.operation_routes import operation
from trainyard.emulator.storage.preconditions import number
from trainyard.emulator.storage.s3_xml import Response
from trainyard.emulator.storage.upload_body import document


@dataclass(slots=True)
class _Page:
    entries: list[ObjectInfo] = field(default_factory=list)
    prefixes: list[str] = field(default_factory=list)
    key: str = ""
    """Key of the last entry: the next page starts after it."""
    version: str = ""
    is_truncated: bool = False


@dataclass(frozen=True, slots=True)
class Versions:
    store: ObjectStore

    @operation("GetBucketVersioning")
    def get(self, request: Request, bucket: str, key: str) -> Response:
        status = self.store.setting(bucket, VERSIONING)
        return s3_xml.document("VersioningConfiguration", [("Status", status)] if status else [])

    @operation("PutBucketVersioning", heeds=f"{PREFIX}*")
    def put(self, request: Request, bucket: str, key: str) -> Response:
        self.store.need_bucket(bucket)
        configuration = s3_xml.parse(document(request))
        status = configuration.findtext("Status")
        if configuration.findtext("MfaDelete") == "Enabled":
            message = "The emulator's S3 does not implement MfaDelete of PutBucketVersioning."
            raise ApiError("NotImplemented", message, 501)
        if status not in ("Enabled", "Suspended"):
            if status:
                raise ApiError("MalformedXML", s3_xml.MALFORMED_XML)
            message = "The Versioning element must be specified"
            raise ApiError("IllegalVersioningConfigurationException", message)
        if status == "Suspended" and self.store.setting(bucket, "object-lock"):
            message = "An Object Lock configuration is present on this bucket, so the versioning "
            raise ApiError("InvalidBucketState", message + "state cannot be changed.", 409)
        self.store.set(bucket, VERSIONING, status)
        return Response()

    @operation(
        "ListObjectVersions",
        heeds="delimiter encoding-type key-marker max-keys prefix version-id-marker",
    )
    def list_all(self, request: Request, bucket: str, key: str) -> Response:
        self.store.need_bucket(bucket)
        args = request.args
        limit = min(number(args.get("max-keys"), "max-keys", LIMIT), LIMIT)
        marker, version = args.get("key-marker", ""), args.get("version-id-marker", "")
        if version and not marker:
            message = "A version-id marker cannot be specified without a key marker."
            fields = {"ArgumentName": "version-id-marker", "ArgumentValue": version}
            raise S3Error("InvalidArgument", message, fields=fields)
        page = self._read(request, bucket, limit, marker, version)
        tree: list = [("Name", bucket), ("Prefix", encode(request, args.get("prefix", "")))]
        tree += [("KeyMarker", encode(request, marker)), ("VersionIdMarker", version)]
        if page.is_truncated:
            tree.append(("NextKeyMarker", encode(request, page.key)))
            tree += [("NextVersionIdMarker", page.version)] if page.version else []
        tree += [("MaxKeys", limit), ("IsTruncated", page.is_truncated)]
        if delimiter := args.get("delimiter"):
            tree.append(("Delimiter", encode(request, delimiter)))
        if args.get("encoding-type") == "url":
            tree.append(("EncodingType", "url"))
        tree += [self._entry(request, bucket, info) for info in page.entries]
        for prefix in page.prefixes:
            tree.append(("CommonPrefixes", [("Prefix", encode(request, prefix))]))
        return s3_xml.document("ListVersionsResult", tree)

    def _read(self, request: Request, bucket: str, limit: int, marker: str, version: str) -> _Page:
        prefix, delimiter = request.args.get("prefix", ""), request.args.get("delimiter", "")
        page, end = _Page(), successor(prefix.encode())
        low, below = self._start(bucket, marker, version)
        if delimiter and marker and (common_prefix := roll_up(marker, prefix, delimiter)):
            low = max(low, successor(common_prefix.encode()))  # an earlier page had that prefix
        low = max(low, prefix.encode())
        while limit:
            common_prefix = None
            for info in self.store.index.versions(bucket, low, end, below):
                common_prefix = roll_up(info.key, prefix, delimiter)
                if len(page.entries) + len(page.prefixes) == limit:
                    page.is_truncated = True
                    return page
                page.key, page.version = (
                    common_prefix or info.key,
                    "" if common_prefix else info.version,
                )
                if common_prefix:
                    page.prefixes.append(common_prefix)
                    break
                page.entries.append(info)
            if common_prefix is None:
                return page
            low, below = successor(common_prefix.encode()), 2**63 - 1
        return page

    def _start(self, bucket: str, marker: str, version: str) -> tuple[bytes, int]:
        """Return where a listing starts: after all of the marker's versions, or after the named
        one.
        """
        if not version:
            return (marker.encode() + b"\0" if marker else b""), 2**63 - 1
        seq = seq_of(version)
        if seq is None:
            info = self.store.index.version(bucket, marker, version)
            seq = info.seq if info else 2**63 - 1
        return marker.encode(), seq

    def _entry(self, request: Request, bucket: str, info: ObjectInfo) -> tuple[str, list]:
        entry: list = [("Key", encode(request, info.key)), ("VersionId", info.version)]
        entry.append(("IsLatest", self._is_latest(bucket, info)))
        entry.append(("LastModified", s3_xml.timestamp(info.last_modified)))
        if info.marker:
            return "DeleteMarker", [*entry, ("Owner", s3_xml.OWNER)]
        entry += [("ETag", f'"{info.etag}"'), ("Size", info.size), *of_checksums(info)]
        entry.append(("StorageClass", info.headers.get(STORAGE, "STANDARD")))
        return "Version", [*entry, ("Owner", s3_xml.OWNER)]

    def _is_latest(self, bucket: str, info: ObjectInfo) -> bool:
        current = self.store.index.current(bucket, info.key)
        if current or not info.marker:
            return current is not None and current.version == info.version
        newest = self.store.index.latest(bucket, info.key)
        return newest is not None and newest.version == info.version
