"""What a request to S3 needs: Service Authorization Reference, "Amazon S3", and S3's user guide,
"Required permissions for Amazon S3 API operations".
"""

import re
from collections.abc import Iterator
from urllib.parse import unquote

from werkzeug import Request

from trainyard.emulator.api import ApiError
from trainyard.emulator.authorization.api_call import Call
from trainyard.emulator.authorization.service_calls import key_call
from trainyard.emulator.storage.object_headers import ACL, tags_of
from trainyard.emulator.storage.object_requests import COPY
from trainyard.emulator.storage.object_store import ObjectStore
from trainyard.emulator.storage.s3_dispatch import target
from trainyard.emulator.storage.s3_operations import operation_of

_ACTIONS = {
    "HeadObject": "GetObject",
    "CopyObject": "PutObject",
    "CreateMultipartUpload": "PutObject",
    "UploadPart": "PutObject",
    "UploadPartCopy": "PutObject",
    "CompleteMultipartUpload": "PutObject",
    "ListParts": "ListMultipartUploadParts",
    "HeadBucket": "ListBucket",
    "ListObjects": "ListBucket",
    "ListObjectsV2": "ListBucket",
    "ListObjectVersions": "ListBucketVersions",
    "ListMultipartUploads": "ListBucketMultipartUploads",
    "ListBuckets": "ListAllMyBuckets",
    "DeleteBucketTagging": "PutBucketTagging",
    "DeleteBucketCors": "PutBucketCORS",
    "DeleteBucketLifecycle": "PutLifecycleConfiguration",
    "DeleteBucketEncryption": "PutEncryptionConfiguration",
    "DeleteBucketReplication": "PutReplicationConfiguration",
    "DeleteBucketOwnershipControls": "PutBucketOwnershipControls",
    "GetPublicAccessBlock": "GetBucketPublicAccessBlock",
    "PutPublicAccessBlock": "PutBucketPublicAccessBlock",
    "DeletePublicAccessBlock": "PutBucketPublicAccessBlock",
    "GetBucketEncryption": "GetEncryptionConfiguration",
    "GetBucketLifecycleConfiguration": "GetLifecycleConfiguration",
    "GetBucketReplication": "GetReplicationConfiguration",
    "GetBucketCors": "GetBucketCORS",
    "GetBucketNotificationConfiguration": "GetBucketNotification",
    "GetBucketAccelerateConfiguration": "GetAccelerateConfiguration",
    "GetObjectLockConfiguration": "GetBucketObjectLockConfiguration",
}
"""Operation → its action, where the names differ."""
_VERSION_ACTIONS = ("GetObject", "DeleteObject", "GetObjectTagging", "PutObjectTagging")
"""Actions with a sister for a named version: ``GetObjectVersion``, ``GetObjectVersionTagging``."""
_QUERY = {"prefix": "prefix", "delimiter": "delimiter", "max-keys": "max-keys"} | {
    "versionId": "versionid"
}
KEY = "x-amz-server-side-encryption-aws-kms-key-id"
"""Header with the key of an object that KMS encrypts."""
_HEADERS = (
    *("x-amz-acl", "x-amz-server-side-encryption", "x-amz-storage-class", "x-amz-copy-source"),
    *(KEY, "x-amz-content-sha256"),
)
_READS = ("GetObject", "HeadObject", "GetObjectAttributes")
_TAG = "s3:existingobjecttag/"
_KNOWN_ACTIONS = frozenset(f"s3:{name}" for name in (*_QUERY.values(), *_HEADERS)) | {_TAG}
_OBJECT = re.compile(r"arn:[\w-]+:s3:::([^/]+)/(.+)", re.DOTALL)
HAS_TAGS = re.compile(
    r"s3:(GetObject(Version)?(Acl|Attributes|Tagging)?|(Put|Delete)Object(Version)?Tagging"
    r"|PutObject(Version)?Acl)"
)
"""Actions whose condition keys are the tags of the object, as it is before them."""


def object_call(action: str, bucket: str, key: str) -> Call:
    """Return the call of an action on an object, as a service makes it."""
    return Call(f"s3:{action}", f"arn:aws:s3:::{bucket}/{key}", known_keys=_KNOWN_ACTIONS)


def existing_tags(call: Call, objects: ObjectStore) -> dict[str, tuple[str, ...]]:
    """Return ``s3:ExistingObjectTag/KEY`` for each tag of the object that a call is about."""
    match = _OBJECT.fullmatch(call.resource) if HAS_TAGS.fullmatch(call.action) else None
    if match is None:
        return {}
    version = next(iter(call.context.get("s3:versionid", ())), None)
    try:
        info = objects.head(match[1], match[2], version)
    except ApiError:  # S3 says what is missing, to whoever may know it
        return {}
    return {f"{_TAG}{key.lower()}": (value,) for key, value in tags_of(info.headers)}


def decryption(objects: ObjectStore, bucket: str, key: str) -> Iterator[Call]:
    """Iterate over what reading an object that a key of KMS encrypts needs besides."""
    info = objects.index.current(bucket, key)
    if name := info.headers.get(KEY) if info else None:
        yield key_call("Decrypt", name)


def existence(objects: ObjectStore, bucket: str, key: str) -> Iterator[Call]:
    """Iterate over what a reader needs besides to be told that a key is missing (GetObject's API
    reference). The request has no prefix, which a condition may ask for.
    """
    if objects.has_bucket(bucket) and not objects.exists(bucket, key):
        yield Call("s3:ListBucket", f"arn:aws:s3:::{bucket}", known_keys=_KNOWN_ACTIONS)


def list_call(bucket: str, prefix: str) -> Call:
    """Return the call that lists the keys below a prefix."""
    return Call("s3:ListBucket", f"arn:aws:s3:::{bucket}", {"s3:prefix": (prefix,)}, _KNOWN_ACTIONS)


def s3_calls(request: Request, objects: ObjectStore) -> Iterator[Call]:
    """Iterate over the actions that a request to S3 needs; none for one that is no operation."""
    try:
        bucket, key = target(request)
    except ApiError:  # S3 says what is wrong with it
        return
    s3_operation = operation_of("object" if key else "bucket" if bucket else "service", request)
    if s3_operation is None:
        return
    context = {f"s3:{n}": (request.args[q],) for q, n in _QUERY.items() if q in request.args}
    context |= {f"s3:{n}": (request.headers[n],) for n in _HEADERS if n in request.headers}
    action = _ACTIONS.get(s3_operation.name, s3_operation.name)
    if action in _VERSION_ACTIONS and "versionId" in request.args:
        action = action.replace("Object", "ObjectVersion")
    resource = f"arn:aws:s3:::{bucket}" + (f"/{key}" if key else "") if bucket else "*"
    if s3_operation.name != "DeleteObjects":  # which asks for each of its keys
        yield Call(f"s3:{action}", resource, context, _KNOWN_ACTIONS)
    yield from _further(s3_operation.name, request, resource, objects)
    if s3_operation.name in _READS and "versionId" not in request.args:
        yield from existence(objects, bucket, key)
    if s3_operation.name == "GetObject":
        yield from decryption(objects, bucket, key)
    if name := request.headers.get(KEY) if key else None:
        yield key_call("GenerateDataKey", name)


def _further(
    operation: str, request: Request, resource: str, objects: ObjectStore
) -> Iterator[Call]:
    """Iterate over the further actions of an operation that copies, tags or sets a list."""
    if source := request.headers.get(COPY):
        path, _, version = unquote(source).lstrip("/").partition("?versionId=")
        verb = "GetObjectVersion" if version else "GetObject"
        yield Call(f"s3:{verb}", f"arn:aws:s3:::{path}", known_keys=_KNOWN_ACTIONS)
        bucket, _, key = path.partition("/")
        if not version:
            yield from existence(objects, bucket, key)
        yield from decryption(objects, bucket, key)
    if operation == "GetObjectAttributes":
        yield Call("s3:GetObject", resource, known_keys=_KNOWN_ACTIONS)
    if request.headers.get("x-amz-tagging") and request.method in ("PUT", "POST"):
        yield Call("s3:PutObjectTagging", resource, known_keys=_KNOWN_ACTIONS)
    if ACL in request.headers and operation in ("PutObject", "CopyObject", "CreateMultipartUpload"):
        acl = {"s3:x-amz-acl": (request.headers[ACL],)}
        yield Call("s3:PutObjectAcl", resource, acl, _KNOWN_ACTIONS)
