"""Requests on a bucket, and on the account's list of buckets."""

import re
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from werkzeug import Request

from trainyard.emulator.api import ApiError, S3Error
from trainyard.emulator.request_scope import REGION
from trainyard.emulator.storage import list_objects, s3_xml
from trainyard.emulator.storage.checksums import PREFIX
from trainyard.emulator.storage.multipart import Uploads
from trainyard.emulator.storage.object_headers import ACL, check_acl
from trainyard.emulator.storage.object_store import ObjectStore
from trainyard.emulator.storage.operation_routes import operation
from trainyard.emulator.storage.preconditions import check_of_delete, number
from trainyard.emulator.storage.s3_operations import operation_of
from trainyard.emulator.storage.s3_xml import Response
from trainyard.emulator.storage.upload_body import document

_LISTING = "prefix delimiter max-keys encoding-type"
_PLACE = "location"
_SCOPE = re.compile(r"/\d{8}/([^/]+)/s3/aws4_request")
_MOST_DELETED = 1000  # objects that one DeleteObjects names (S3's limit)
MAY_DELETE = "trainyard.may_delete"
"""Key of the WSGI environment: called with bucket, key and version (or None) of each object that
DeleteObjects names; raises ApiError if the caller may not delete it."""
_UNSET = {  # settings that buckets here never have: operation → S3's error code and message
    "GetBucketLifecycleConfiguration": (
        "NoSuchLifecycleConfiguration",
        "The lifecycle configuration does not exist",
    ),
    "GetBucketCors": ("NoSuchCORSConfiguration", "The CORS configuration does not exist"),
    "GetBucketWebsite": (
        "NoSuchWebsiteConfiguration",
        "The specified bucket does not have a website configuration",
    ),
    "GetBucketOwnershipControls": (
        "OwnershipControlsNotFoundError",
        "The bucket ownership controls were not found",
    ),
    "GetBucketEncryption": (
        "ServerSideEncryptionConfigurationNotFoundError",
        "The server side encryption configuration was not found",
    ),
    "GetBucketReplication": (
        "ReplicationConfigurationNotFoundError",
        "The replication configuration was not found",
    ),
    "GetObjectLockConfiguration": (
        "ObjectLockConfigurationNotFoundError",
        "Object Lock configuration does not exist for this bucket",
    ),
}
_EMPTY = {  # settings whose "off" is an empty document
    "GetBucketLogging": "BucketLoggingStatus",
    "GetBucketNotificationConfiguration": "NotificationConfiguration",
    "GetBucketAccelerateConfiguration": "AccelerateConfiguration",
}
_REMOVALS = (  # of settings that no bucket has: they always succeed
    "DeleteBucketCors",
    "DeleteBucketWebsite",
    "DeleteBucketLifecycle",
    "DeleteBucketEncryption",
    "DeleteBucketReplication",
    "DeleteBucketOwnershipControls",
)


@dataclass(frozen=True, slots=True)
class Buckets:
    store: ObjectStore
    uploads: Uploads

    @operation("ListBuckets", heeds="max-buckets continuation-token prefix bucket-region")
    def all(self, request: Request, bucket: str, key: str) -> Response:
        args = request.args
        limit = number(args.get("max-buckets"), "max-buckets", 10_000, 1, 10_000)
        prefix, after = args.get("prefix", ""), list_objects.untoken(args.get("continuation-token"))
        is_own_region = args.get("bucket-region", REGION) == REGION
        buckets = [(n, t) for n, t in self.store.buckets() if n.startswith(prefix) and n > after]
        names = [
            ("Bucket", [("Name", name), ("CreationDate", s3_xml.timestamp(creation_time))])
            for name, creation_time in buckets[: limit if is_own_region else 0]
        ]
        tree: list = [("Owner", s3_xml.OWNER), ("Buckets", names)]
        if is_own_region and len(buckets) > limit:
            tree.append(("ContinuationToken", list_objects.token(buckets[limit - 1][0])))
        return s3_xml.document(
            "ListAllMyBucketsResult", tree + ([("Prefix", prefix)] * bool(prefix))
        )

    @operation("CreateBucket", heeds=f"{ACL} x-amz-object-ownership {PREFIX}*")
    def create(self, request: Request, bucket: str, key: str) -> Response:
        check_acl(request.headers)
        _need_default(request, "x-amz-object-ownership", "BucketOwnerEnforced")
        text = document(request)
        place = _location(s3_xml.parse(text) if text.strip() else None, _region(request))
        new = not self.store.has_bucket(bucket)
        self.store.create_bucket(bucket)
        if new and place:
            self.store.set(bucket, _PLACE, place)
        return Response(headers={"Location": f"/{bucket}"})

    @operation("HeadBucket")
    def head(self, request: Request, bucket: str, key: str) -> Response:
        place = self.store.setting(bucket, _PLACE)
        headers = {"x-amz-bucket-region": place or REGION}
        return Response(headers=headers, content_type="application/xml")

    @operation("DeleteBucket")
    def delete(self, request: Request, bucket: str, key: str) -> Response:
        self.store.delete_bucket(bucket)
        for upload in self.uploads.of_bucket(bucket):
            self.uploads.abort(upload)
        return Response(status=204)

    @operation("ListObjectsV2", heeds=f"{_LISTING} continuation-token fetch-owner start-after")
    def list_objects_v2(self, request: Request, bucket: str, key: str) -> Response:
        self.store.need_bucket(bucket)
        return list_objects.objects_v2(self.store, bucket, request)

    @operation("ListObjects", heeds=f"{_LISTING} marker")
    def list_objects(self, request: Request, bucket: str, key: str) -> Response:
        self.store.need_bucket(bucket)
        return list_objects.objects_v1(self.store, bucket, request)

    @operation("GetBucketLocation")
    def location(self, request: Request, bucket: str, key: str) -> Response:
        """Return the bucket's region; an empty constraint is us-east-1."""
        return s3_xml.document("LocationConstraint", self.store.setting(bucket, _PLACE) or "")

    @operation(*_UNSET)
    def unset(self, request: Request, bucket: str, key: str) -> Response:
        self.store.need_bucket(bucket)
        code, message = _UNSET[_name(request)]
        raise S3Error(code, message, 404, fields={"BucketName": bucket})

    @operation(*_EMPTY)
    def empty(self, request: Request, bucket: str, key: str) -> Response:
        self.store.need_bucket(bucket)
        return s3_xml.document(_EMPTY[_name(request)], [])

    @operation("GetBucketRequestPayment")
    def payer(self, request: Request, bucket: str, key: str) -> Response:
        self.store.need_bucket(bucket)
        return s3_xml.document("RequestPaymentConfiguration", [("Payer", "BucketOwner")])

    @operation(*_REMOVALS)
    def remove(self, request: Request, bucket: str, key: str) -> Response:
        self.store.need_bucket(bucket)
        return Response(status=204)

    @operation("DeleteObjects", heeds=f"x-amz-bypass-governance-retention {PREFIX}*")
    def delete_objects(self, request: Request, bucket: str, key: str) -> Response:
        self.store.need_bucket(bucket)
        request_tree = s3_xml.parse(document(request))
        quiet = request_tree.findtext("Quiet") == "true"
        objects = request_tree.findall("Object")
        if not 1 <= len(objects) <= _MOST_DELETED:
            message = f"Delete must name 1 to {_MOST_DELETED} objects, not {len(objects)}."
            raise ApiError("MalformedXML", message)
        tree = []
        for element in objects:
            tag, entry = self._delete_one(request, bucket, element)
            if tag == "Error" or not quiet:
                tree.append((tag, entry))
        return s3_xml.document("DeleteResult", tree)

    def _delete_one(self, request: Request, bucket: str, element: Element) -> tuple[str, list]:
        key, version = s3_xml.text(element, "Key"), element.findtext("VersionId")
        entry = [("Key", key)] + ([("VersionId", version)] if version else [])
        try:
            if may_delete := request.environ.get(MAY_DELETE):
                may_delete(bucket, key, version)
            check = check_of_delete(
                element.findtext("ETag"),
                element.findtext("LastModifiedTime"),
                element.findtext("Size"),
            )
            result = self.store.delete(bucket, key, version or None, check=check)
        except ApiError as failure:
            return "Error", [*entry, ("Code", failure.code), ("Message", failure.message)]
        if result.marker:
            entry.append(("DeleteMarker", "true"))
            entry.append(("DeleteMarkerVersionId", result.version))
        return "Deleted", entry

    @operation(
        "ListMultipartUploads",
        heeds="prefix delimiter encoding-type key-marker upload-id-marker max-uploads",
    )
    def list_uploads(self, request: Request, bucket: str, key: str) -> Response:
        self.store.need_bucket(bucket)
        return list_objects.uploads(self.uploads.of_bucket(bucket), bucket, request)


def _name(request: Request) -> str:
    s3_operation = operation_of("bucket", request)
    return s3_operation.name if s3_operation else ""


def _need_default(request: Request, header: str, only: str) -> None:
    value = request.headers.get(header, only)
    if value != only:
        message = f"The emulator's S3 does not implement {header} {value} of CreateBucket."
        raise ApiError("NotImplemented", message, 501)


def _region(request: Request) -> str:
    """Return the region that the client signs for; us-east-1 if it signs for none."""
    credential = request.headers.get("Authorization") or request.args.get("X-Amz-Credential", "")
    match = _SCOPE.search(credential)
    return match[1] if match else "us-east-1"


def _location(configuration: Element | None, region: str) -> str:
    """Return the region that the client names. It must be the signed one, unless that is us-east-1.

    Raises ``NotImplemented`` for other members of the configuration.
    """
    for child in configuration if configuration is not None else ():
        if child.tag != "LocationConstraint":
            message = f"The emulator's S3 does not implement {child.tag} of CreateBucket."
            raise ApiError("NotImplemented", message, 501)
    place = (
        configuration.findtext("LocationConstraint") if configuration is not None else None
    ) or ""
    if region not in ("us-east-1", place):
        message = f"The {place or 'unspecified'} location constraint is incompatible for the region"
        message += " specific endpoint this request was sent to."
        raise ApiError("IllegalLocationConstraintException", message)
    if place == "us-east-1" or not list_objects.REGIONS.fullmatch(place or "EU"):
        message = "The specified location-constraint is not valid"
        fields = {"LocationConstraint": place}
        raise S3Error("InvalidLocationConstraint", message, fields=fields)
    return place
