"""Requests on a bucket, and on the account's list of buckets."""

from dataclasses import dataclass

from werkzeug import Request, Response

from trainyard.emulator.api import REGION, ApiError
from trainyard.emulator.objects import ObjectStore
from trainyard.emulator.s3 import listing, xml
from trainyard.emulator.s3.multipart import Uploads
from trainyard.emulator.s3.routes import operation, sub_of

_OWNER = [("ID", "emulator"), ("DisplayName", "emulator")]

_UNSET = {  # sub-resources that SDKs ask for and that no bucket here has: S3's own error codes
    "tagging": "NoSuchTagSet",
    "policy": "NoSuchBucketPolicy",
    "lifecycle": "NoSuchLifecycleConfiguration",
    "cors": "NoSuchCORSConfiguration",
    "website": "NoSuchWebsiteConfiguration",
    "publicAccessBlock": "NoSuchPublicAccessBlockConfiguration",
    "ownershipControls": "OwnershipControlsNotFoundError",
    "encryption": "ServerSideEncryptionConfigurationNotFoundError",
    "replication": "ReplicationConfigurationNotFoundError",
    "object-lock": "ObjectLockConfigurationNotFoundError",
}
_EMPTY = {  # sub-resources whose "off" is an empty document
    "versioning": "VersioningConfiguration",
    "logging": "BucketLoggingStatus",
    "notification": "NotificationConfiguration",
    "accelerate": "AccelerateConfiguration",
}


@dataclass(frozen=True, slots=True)
class Buckets:
    store: ObjectStore
    uploads: Uploads

    @operation("service", "GET")
    def all(self, request: Request, bucket: str, key: str) -> Response:
        names = [
            ("Bucket", [("Name", name), ("CreationDate", xml.timestamp(created))])
            for name, created in self.store.buckets()
        ]
        tree: list = [("Owner", _OWNER), ("Buckets", names)]
        return xml.document("ListAllMyBucketsResult", tree)

    @operation("bucket", "PUT")
    def create(self, request: Request, bucket: str, key: str) -> Response:
        self.store.create_bucket(bucket)
        return Response(headers={"Location": f"/{bucket}"})

    @operation("bucket", "HEAD")
    def head(self, request: Request, bucket: str, key: str) -> Response:
        self._need(bucket)
        return Response(headers={"x-amz-bucket-region": REGION})

    @operation("bucket", "DELETE")
    def delete(self, request: Request, bucket: str, key: str) -> Response:
        self.store.delete_bucket(bucket)
        return Response(status=204)

    @operation("bucket", "GET")
    def list_objects(self, request: Request, bucket: str, key: str) -> Response:
        self._need(bucket)
        if request.args.get("list-type") == "2":
            return listing.objects_v2(self.store, bucket, request)
        return listing.objects_v1(self.store, bucket, request)

    @operation("bucket", "GET", "location")
    def location(self, request: Request, bucket: str, key: str) -> Response:
        self._need(bucket)  # us-east-1 answers an empty constraint
        return xml.document("LocationConstraint", [])

    @operation("bucket", "GET", "acl")
    def acl(self, request: Request, bucket: str, key: str) -> Response:
        self._need(bucket)
        return xml.document("AccessControlPolicy", _private())

    @operation("bucket", "GET", *_UNSET)
    def unset(self, request: Request, bucket: str, key: str) -> Response:
        self._need(bucket)
        sub = sub_of(request)
        raise ApiError(_UNSET[sub], f"The bucket {bucket} has no {sub} configuration.", 404)

    @operation("bucket", "GET", *_EMPTY)
    def empty(self, request: Request, bucket: str, key: str) -> Response:
        self._need(bucket)
        return xml.document(_EMPTY[sub_of(request)], [])

    @operation("bucket", "POST", "delete")
    def delete_objects(self, request: Request, bucket: str, key: str) -> Response:
        self._need(bucket)
        wanted = xml.parse(request.get_data())
        quiet = wanted.findtext("Quiet") == "true"
        tree = []
        for element in wanted.iter("Object"):
            named = xml.text(element, "Key")
            self.store.delete(bucket, named)
            if not quiet:
                tree.append(("Deleted", [("Key", named)]))
        return xml.document("DeleteResult", tree)

    @operation("bucket", "GET", "uploads")
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


def _private() -> list:
    grant = [("Grantee", _OWNER), ("Permission", "FULL_CONTROL")]
    return [("Owner", _OWNER), ("AccessControlList", [("Grant", grant)])]
