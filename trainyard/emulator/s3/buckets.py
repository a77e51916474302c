"""Requests on a bucket, and on the account's list of buckets."""

from dataclasses import dataclass

from werkzeug import Request, Response

from trainyard.emulator.api import REGION, ApiError
from trainyard.emulator.objects import ObjectStore
from trainyard.emulator.s3 import listing, xml
from trainyard.emulator.s3.multipart import Uploads

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
READABLE = frozenset({None, "uploads", "location", "acl", *_UNSET, *_EMPTY})
"""Sub-resources that :meth:`Buckets.get` answers; None is the list of objects."""


@dataclass(frozen=True, slots=True)
class Buckets:
    store: ObjectStore
    uploads: Uploads

    def all(self) -> Response:
        names = [
            ("Bucket", [("Name", name), ("CreationDate", xml.timestamp(created))])
            for name, created in self.store.buckets()
        ]
        tree = [("Owner", _OWNER), ("Buckets", names)]
        return xml.document("ListAllMyBucketsResult", tree)

    def create(self, bucket: str) -> Response:
        self.store.create_bucket(bucket)
        return Response(headers={"Location": f"/{bucket}"})

    def head(self, bucket: str) -> Response:
        self._need(bucket)
        return Response(headers={"x-amz-bucket-region": REGION})

    def delete(self, bucket: str) -> Response:
        self.store.delete_bucket(bucket)
        return Response(status=204)

    def get(self, request: Request, bucket: str, sub: str | None) -> Response:
        self._need(bucket)
        if sub == "uploads":
            return self._list_uploads(request, bucket)
        if sub == "location":  # us-east-1 answers an empty constraint
            return xml.document("LocationConstraint", [])
        if sub == "acl":
            return xml.document("AccessControlPolicy", _private())
        if sub in _UNSET:
            raise ApiError(_UNSET[sub], f"The bucket {bucket} has no {sub} configuration.", 404)
        if sub in _EMPTY:
            return xml.document(_EMPTY[sub], [])
        if request.args.get("list-type") == "2":
            return listing.objects_v2(self.store, bucket, request)
        return listing.objects_v1(self.store, bucket, request)

    def delete_objects(self, request: Request, bucket: str) -> Response:
        self._need(bucket)
        wanted = xml.parse(request.get_data())
        quiet = wanted.findtext("Quiet") == "true"
        tree = []
        for element in wanted.iter("Object"):
            key = xml.text(element, "Key")
            self.store.delete(bucket, key)
            if not quiet:
                tree.append(("Deleted", [("Key", key)]))
        return xml.document("DeleteResult", tree)

    def _list_uploads(self, request: Request, bucket: str) -> Response:
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
