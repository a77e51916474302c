"""Requests on a bucket, and on the account's list of buckets."""

from dataclasses import dataclass

from werkzeug import Request, Response

from trainyard.emulator.api import REGION, ApiError
from trainyard.emulator.objects import ObjectStore
from trainyard.emulator.s3 import listing, xml
from trainyard.emulator.s3.model import operation_of
from trainyard.emulator.s3.multipart import Uploads
from trainyard.emulator.s3.routes import operation

_OWNER = [("ID", "emulator"), ("DisplayName", "emulator")]

_LISTING = "prefix delimiter max-keys encoding-type"
_UNSET = {  # what SDKs ask for and no bucket here has: the operation → its subject, S3's error code
    "GetBucketTagging": ("tagging", "NoSuchTagSet"),
    "GetBucketPolicy": ("policy", "NoSuchBucketPolicy"),
    "GetBucketLifecycleConfiguration": ("lifecycle", "NoSuchLifecycleConfiguration"),
    "GetBucketCors": ("CORS", "NoSuchCORSConfiguration"),
    "GetBucketWebsite": ("website", "NoSuchWebsiteConfiguration"),
    "GetPublicAccessBlock": ("public access block", "NoSuchPublicAccessBlockConfiguration"),
    "GetBucketOwnershipControls": ("ownership controls", "OwnershipControlsNotFoundError"),
    "GetBucketEncryption": ("encryption", "ServerSideEncryptionConfigurationNotFoundError"),
    "GetBucketReplication": ("replication", "ReplicationConfigurationNotFoundError"),
    "GetObjectLockConfiguration": ("object lock", "ObjectLockConfigurationNotFoundError"),
}
_EMPTY = {  # those whose "off" is an empty document
    "GetBucketVersioning": "VersioningConfiguration",
    "GetBucketLogging": "BucketLoggingStatus",
    "GetBucketNotificationConfiguration": "NotificationConfiguration",
    "GetBucketAccelerateConfiguration": "AccelerateConfiguration",
}


@dataclass(frozen=True, slots=True)
class Buckets:
    store: ObjectStore
    uploads: Uploads

    @operation("ListBuckets")
    def all(self, request: Request, bucket: str, key: str) -> Response:
        names = [
            ("Bucket", [("Name", name), ("CreationDate", xml.timestamp(created))])
            for name, created in self.store.buckets()
        ]
        tree: list = [("Owner", _OWNER), ("Buckets", names)]
        return xml.document("ListAllMyBucketsResult", tree)

    @operation("CreateBucket")
    def create(self, request: Request, bucket: str, key: str) -> Response:
        self.store.create_bucket(bucket)
        return Response(headers={"Location": f"/{bucket}"})

    @operation("HeadBucket")
    def head(self, request: Request, bucket: str, key: str) -> Response:
        self._need(bucket)
        return Response(headers={"x-amz-bucket-region": REGION})

    @operation("DeleteBucket")
    def delete(self, request: Request, bucket: str, key: str) -> Response:
        self.store.delete_bucket(bucket)
        return Response(status=204)

    @operation("ListObjectsV2", heeds=f"{_LISTING} continuation-token fetch-owner start-after")
    def list_objects_v2(self, request: Request, bucket: str, key: str) -> Response:
        self._need(bucket)
        return listing.objects_v2(self.store, bucket, request)

    @operation("ListObjects", heeds=f"{_LISTING} marker")
    def list_objects(self, request: Request, bucket: str, key: str) -> Response:
        self._need(bucket)
        return listing.objects_v1(self.store, bucket, request)

    @operation("GetBucketLocation")
    def location(self, request: Request, bucket: str, key: str) -> Response:
        self._need(bucket)  # us-east-1 answers an empty constraint
        return xml.document("LocationConstraint", [])

    @operation("GetBucketAcl")
    def acl(self, request: Request, bucket: str, key: str) -> Response:
        self._need(bucket)
        return xml.document("AccessControlPolicy", _private())

    @operation(*_UNSET)
    def unset(self, request: Request, bucket: str, key: str) -> Response:
        self._need(bucket)
        subject, code = _UNSET[_name(request)]
        raise ApiError(code, f"The bucket {bucket} has no {subject} configuration.", 404)

    @operation(*_EMPTY)
    def empty(self, request: Request, bucket: str, key: str) -> Response:
        self._need(bucket)
        return xml.document(_EMPTY[_name(request)], [])

    @operation("DeleteObjects", heeds="x-amz-checksum-*")
    def delete_objects(self, request: Request, bucket: str, key: str) -> Response:
        self._need(bucket)
        wanted = xml.parse(request.get_data())
        quiet = wanted.findtext("Quiet") == "true"
        tree = []
        for element in wanted.iter("Object"):
            named = xml.text(element, "Key")
            for each in element:
                if each.tag != "Key":
                    message = f"The emulator's S3 does not implement {each.tag} of DeleteObjects."
                    raise ApiError("NotImplemented", message, 501)
            self.store.delete(bucket, named)
            if not quiet:
                tree.append(("Deleted", [("Key", named)]))
        return xml.document("DeleteResult", tree)

    @operation("ListMultipartUploads", heeds="prefix")
    def list_uploads(self, request: Request, bucket: str, key: str) -> Response:
        self._need(bucket)
        prefix = request.args.get("prefix", "")
        tree: list = [("Bucket", bucket), ("Prefix", prefix), ("IsTruncated", False)]
        for upload in self.uploads.of_bucket(bucket, prefix):
            tree.append(
                (
                    "Upload",
                    [
                        ("Key", upload.key),
                        ("UploadId", upload.id),
                        ("Initiated", xml.timestamp(upload.started)),
                    ],
                )
            )
        return xml.document("ListMultipartUploadsResult", tree)

    def _need(self, bucket: str) -> None:
        if not self.store.has_bucket(bucket):
            raise ApiError("NoSuchBucket", f"The bucket {bucket!r} does not exist", 404)


def _name(request: Request) -> str:
    found = operation_of("bucket", request)
    return found.name if found else ""


def _private() -> list:
    grant = [("Grantee", _OWNER), ("Permission", "FULL_CONTROL")]
    return [("Owner", _OWNER), ("AccessControlList", [("Grant", grant)])]
