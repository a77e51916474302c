"""The actions that a request to S3 needs, and the calls that SageMaker makes with a role.

Sources: Service Authorization Reference, "Amazon S3", and S3's user guide, "Required permissions
for Amazon S3 API operations".
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from werkzeug import Request

from trainyard.emulator.iam.service_calls import (
    Call,
    build_condition_keys,
    iter_members,
    iter_sagemaker_calls,
    make_key_call,
    make_log_call,
)
from trainyard.emulator.request_scope import ApiError, find_other_account, make_arn
from trainyard.emulator.s3.object_requests import ACL, COPY, parse_tags
from trainyard.emulator.s3.object_store import ObjectStore
from trainyard.emulator.s3.operation_routes import find_operation
from trainyard.emulator.s3.s3_dispatch import parse_target
from trainyard.language.step_types import get_step_type

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
"""Operation to its IAM action, if the names differ."""
_VERSION_ACTIONS = ("GetObject", "DeleteObject", "GetObjectTagging", "PutObjectTagging")
"""Actions that have a counterpart for a specific version: ``GetObjectVersion``,
``GetObjectVersionTagging``.
"""
_QUERY = {"prefix": "prefix", "delimiter": "delimiter", "max-keys": "max-keys"} | {
    "versionId": "versionid"
}
KEY = "x-amz-server-side-encryption-aws-kms-key-id"
"""Header with the KMS key with which an object is encrypted."""
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
"""Actions whose condition keys include the tags that the object has before the action."""


def make_object_call(action: str, bucket: str, key: str) -> Call:
    """Return the call for an action on an object, as a service makes it."""
    return Call(f"s3:{action}", f"arn:aws:s3:::{bucket}/{key}", known_keys=_KNOWN_ACTIONS)


def read_existing_tags(call: Call, objects: ObjectStore) -> dict[str, tuple[str, ...]]:
    """Return the condition key ``s3:ExistingObjectTag/KEY`` for each tag of the call's object."""
    match = _OBJECT.fullmatch(call.resource) if HAS_TAGS.fullmatch(call.action) else None
    if match is None:
        return {}
    version = next(iter(call.context.get("s3:versionid", ())), None)
    try:
        info = objects.read_info(match[1], match[2], version)
    except ApiError:  # the object is missing: S3 itself reports that
        return {}
    return {f"{_TAG}{key.lower()}": (value,) for key, value in parse_tags(info.headers)}


def iter_decryption_calls(objects: ObjectStore, bucket: str, key: str) -> Iterator[Call]:
    """Iterate over the additional call that reading an object needs if it is encrypted with a KMS
    key.
    """
    info = objects.index.find_current(bucket, key)
    if name := info.headers.get(KEY) if info else None:
        yield make_key_call("Decrypt", name)


def iter_existence_calls(objects: ObjectStore, bucket: str, key: str) -> Iterator[Call]:
    """Iterate over the ListBucket call that a reader needs to get ``NoSuchKey`` for a missing key
    (GetObject's API reference). The call has no prefix, although a condition may require one.
    """
    if objects.has_bucket(bucket) and not objects.exists(bucket, key):
        yield Call("s3:ListBucket", f"arn:aws:s3:::{bucket}", known_keys=_KNOWN_ACTIONS)


def make_list_call(bucket: str, prefix: str) -> Call:
    """Return the call that lists the keys below a prefix."""
    return Call("s3:ListBucket", f"arn:aws:s3:::{bucket}", {"s3:prefix": (prefix,)}, _KNOWN_ACTIONS)


def iter_s3_calls(request: Request, objects: ObjectStore) -> Iterator[Call]:
    """Iterate over the calls that a request to S3 needs. There are none if the request is not an S3
    operation.
    """
    try:
        bucket, key = parse_target(request)
    except ApiError:  # the request is not valid: S3 itself reports that
        return
    s3_operation = find_operation("object" if key else "bucket" if bucket else "service", request)
    if s3_operation is None:
        return
    context = {f"s3:{n}": (request.args[q],) for q, n in _QUERY.items() if q in request.args}
    context |= {f"s3:{n}": (request.headers[n],) for n in _HEADERS if n in request.headers}
    action = _ACTIONS.get(s3_operation.name, s3_operation.name)
    if action in _VERSION_ACTIONS and "versionId" in request.args:
        action = action.replace("Object", "ObjectVersion")
    resource = f"arn:aws:s3:::{bucket}" + (f"/{key}" if key else "") if bucket else "*"
    if s3_operation.name != "DeleteObjects":  # which is checked for each of its keys
        yield Call(f"s3:{action}", resource, context, _KNOWN_ACTIONS)
    yield from _iter_further_calls(s3_operation.name, request, resource, objects)
    if s3_operation.name in _READS and "versionId" not in request.args:
        yield from iter_existence_calls(objects, bucket, key)
    if s3_operation.name == "GetObject":
        yield from iter_decryption_calls(objects, bucket, key)
    if name := request.headers.get(KEY) if key else None:
        yield make_key_call("GenerateDataKey", name)


def _iter_further_calls(
    operation: str, request: Request, resource: str, objects: ObjectStore
) -> Iterator[Call]:
    """Iterate over the additional calls of an operation that copies, reads attributes, or sets tags
    or an ACL.
    """
    if source := request.headers.get(COPY):
        path, _, version = unquote(source).lstrip("/").partition("?versionId=")
        verb = "GetObjectVersion" if version else "GetObject"
        yield Call(f"s3:{verb}", f"arn:aws:s3:::{path}", known_keys=_KNOWN_ACTIONS)
        bucket, _, key = path.partition("/")
        if not version:
            yield from iter_existence_calls(objects, bucket, key)
        yield from iter_decryption_calls(objects, bucket, key)
    if operation == "GetObjectAttributes":
        yield Call("s3:GetObject", resource, known_keys=_KNOWN_ACTIONS)
    if request.headers.get("x-amz-tagging") and request.method in ("PUT", "POST"):
        yield Call("s3:PutObjectTagging", resource, known_keys=_KNOWN_ACTIONS)
    if ACL in request.headers and operation in ("PutObject", "CopyObject", "CreateMultipartUpload"):
        acl = {"s3:x-amz-acl": (request.headers[ACL],)}
        yield Call("s3:PutObjectAcl", resource, acl, _KNOWN_ACTIONS)


# The calls that SageMaker makes with a role: for a job before its container starts, and for a step
# of a pipeline. Calls to S3 are not included, because they are checked as each object is
# transferred. Developer guide, "How to use SageMaker AI execution roles" and "IAM Access
# Management" of Pipelines.

_IMAGE = re.compile(r"(\d{12})\.dkr\.ecr(?:-fips)?\.([\w-]+)\.amazonaws\.com(?:\.cn)?/([^:@]+)")
_OUTPUTS = ("ProcessingOutputConfig", "OutputDataConfig", "TransformOutput", "DataCaptureConfig")
_DESCRIBES = ("DescribeNetworkInterfaces", "DescribeVpcs", "DescribeDhcpOptions") + (
    "DescribeSubnets",
    "DescribeSecurityGroups",
)


def iter_job_calls(request: Mapping[str, Any]) -> Iterator[Call]:
    """Iterate over the calls made with the role of a job or a model: for its image, keys, network
    and file system.
    """
    for name in ("ImageUri", "TrainingImage", "Image"):
        for image in iter_members(request, name):
            yield from _iter_pull_calls(str(image))
    for output in _OUTPUTS:
        for key in iter_members(request.get(output), "KmsKeyId"):
            yield from (
                make_key_call(a, key) for a in ("GenerateDataKey", "Encrypt", "Decrypt") if key
            )
    for key in iter_members(request, "VolumeKmsKeyId"):
        yield make_key_call("CreateGrant", key, kms__grantisforawsresource="true")
    for network in iter_members(request, "VpcConfig"):
        yield from _iter_network_calls(network)
    for system in iter_members(request, "FileSystemDataSource"):
        if system["FileSystemType"] == "FSxLustre":
            yield Call("fsx:DescribeFileSystems")
        else:
            arn = make_arn("elasticfilesystem", f"file-system/{system['FileSystemId']}")
            yield Call("elasticfilesystem:DescribeFileSystems", arn)
            yield Call("elasticfilesystem:DescribeMountTargets", arn)


def _iter_pull_calls(image: str) -> Iterator[Call]:
    """Iterate over the calls that pulling an image from ECR needs. They are checked even if the
    emulator does not pull the image.
    """
    if match := _IMAGE.match(image):
        repository = f"arn:aws:ecr:{match[2]}:{match[1]}:repository/{match[3]}"
        yield Call("ecr:GetAuthorizationToken")
        for action in ("BatchCheckLayerAvailability", "GetDownloadUrlForLayer", "BatchGetImage"):
            yield Call(f"ecr:{action}", repository)


def _iter_network_calls(network: Mapping[str, Any]) -> Iterator[Call]:
    interface = make_arn("ec2", "network-interface/*")
    subnets = [make_arn("ec2", f"subnet/{subnet_id}") for subnet_id in network.get("Subnets", ())]
    groups = [make_arn("ec2", f"security-group/{g}") for g in network.get("SecurityGroupIds", ())]
    for resource in (*subnets, *groups, interface):
        yield Call("ec2:CreateNetworkInterface", resource)
    for subnet in subnets:
        condition_keys = build_condition_keys(ec2__subnet=subnet)
        for verb in ("CreateNetworkInterfacePermission", "DeleteNetworkInterface"):
            yield Call(f"ec2:{verb}", interface, condition_keys)
        yield Call("ec2:DeleteNetworkInterfacePermission", interface, condition_keys)
    yield from (Call(f"ec2:{action}") for action in _DESCRIBES)


def iter_logging_calls(group: str, stream: str) -> Iterator[Call]:
    """Iterate over the calls that writing a job's log needs."""
    yield from (make_log_call(action, group) for action in ("CreateLogGroup", "DescribeLogStreams"))
    yield from (
        make_log_call(action, group, stream) for action in ("CreateLogStream", "PutLogEvents")
    )


def make_metric_call(namespace: str) -> Call:
    """Return the call that recording a job's metrics needs."""
    return Call(
        "cloudwatch:PutMetricData", "*", build_condition_keys(cloudwatch__namespace=namespace)
    )


def iter_step_calls(
    kind: str, name: str, arguments: Mapping[str, Any], fields: Mapping[str, Any]
) -> Iterator[Call]:
    """Iterate over the calls made with the pipeline's role for a step of type ``kind``.

    ``name`` is the name of the resource that the step creates. ``fields`` has FunctionArn,
    SqsQueueUrl and so on.
    """
    if kind == "Lambda":
        yield Call("lambda:InvokeFunction", str(fields.get("FunctionArn")))
    if kind == "Callback":
        queue = str(fields.get("SqsQueueUrl"))
        yield Call("sqs:SendMessage", make_arn("sqs", queue.rpartition("/")[2]))
    request = get_step_type(kind).request
    match = re.fullmatch(r"Create(\w+?)(?:Request|Input)", request or "")
    if match is None:
        return
    if kind == "RegisterModel":
        yield from _iter_register_calls(arguments)
        return
    thing, member = match[1], f"{match[1]}Name"
    step_request = {**arguments, member: arguments.get(member) or name}
    # SageMaker itself tags what a step creates with the execution's ARN.
    tags = [*step_request.get("Tags", ()), {"Key": "sagemaker:pipeline-execution-arn", "Value": ""}]
    yield from iter_sagemaker_calls(f"Create{thing}", step_request | {"Tags": tags})
    yield from iter_sagemaker_calls(f"Describe{thing}", {member: step_request[member]})


def _iter_register_calls(arguments: Mapping[str, Any]) -> Iterator[Call]:
    """Iterate over the calls that registering a model package needs: the service creates the
    package's group and reads the model with the caller's permissions.
    """
    group, tags = arguments.get("ModelPackageGroupName"), arguments.get("Tags") or []
    extended_tags = [*tags, {"Key": "sagemaker:pipeline-execution-arn", "Value": ""}]
    if group and not str(group).startswith("arn:"):
        owner = {"ModelPackageGroupName": group, "Tags": extended_tags}
        yield from iter_sagemaker_calls("CreateModelPackageGroup", owner)
    # No tags for a group of another account, because it has its own.
    tagging = {} if find_other_account(str(group)) else {"Tags": extended_tags}
    yield from iter_sagemaker_calls("CreateModelPackage", {**arguments, "Tags": [], **tagging})
    yield from iter_sagemaker_calls("DescribeModelPackage", {"ModelPackageGroupName": group})
    specification = arguments.get("InferenceSpecification") or {}
    for name in ("ModelDataUrl", "S3Uri"):
        for uri in iter_members(specification, name):
            bucket, _, key = str(uri).removeprefix("s3://").partition("/")
            yield make_object_call("GetObject", bucket, key)
