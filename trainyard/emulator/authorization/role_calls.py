"""The calls that SageMaker makes with a role: a job's before its container starts, a pipeline's for
a step. S3 aside, which asks as it moves each object.

Developer guide, "How to use SageMaker AI execution roles" and "IAM Access Management" of Pipelines.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from trainyard.emulator.api import make_arn
from trainyard.emulator.authorization.api_call import Call, values
from trainyard.emulator.authorization.s3_calls import object_call
from trainyard.emulator.authorization.service_calls import (
    key_call,
    log_call,
    members,
    sagemaker_calls,
)
from trainyard.emulator.request_scope import foreign
from trainyard.language.step_types import step_type

_IMAGE = re.compile(r"(\d{12})\.dkr\.ecr(?:-fips)?\.([\w-]+)\.amazonaws\.com(?:\.cn)?/([^:@]+)")
_OUTPUTS = ("ProcessingOutputConfig", "OutputDataConfig", "TransformOutput", "DataCaptureConfig")
_DESCRIBES = ("DescribeNetworkInterfaces", "DescribeVpcs", "DescribeDhcpOptions") + (
    "DescribeSubnets",
    "DescribeSecurityGroups",
)


def job_calls(request: Mapping[str, Any]) -> Iterator[Call]:
    """Iterate over the calls with a job's or a model's role: image, keys, network, file system."""
    for name in ("ImageUri", "TrainingImage", "Image"):
        for image in members(request, name):
            yield from _pull(str(image))
    for output in _OUTPUTS:
        for key in members(request.get(output), "KmsKeyId"):
            yield from (key_call(a, key) for a in ("GenerateDataKey", "Encrypt", "Decrypt") if key)
    for key in members(request, "VolumeKmsKeyId"):
        yield key_call("CreateGrant", key, kms__grantisforawsresource="true")
    for network in members(request, "VpcConfig"):
        yield from _network(network)
    for system in members(request, "FileSystemDataSource"):
        if system["FileSystemType"] == "FSxLustre":
            yield Call("fsx:DescribeFileSystems")
        else:
            arn = make_arn("elasticfilesystem", f"file-system/{system['FileSystemId']}")
            yield Call("elasticfilesystem:DescribeFileSystems", arn)
            yield Call("elasticfilesystem:DescribeMountTargets", arn)


def _pull(image: str) -> Iterator[Call]:
    """An image in ECR; the emulator pulls none, and its role is held to what a pull needs."""
    if match := _IMAGE.match(image):
        repository = f"arn:aws:ecr:{match[2]}:{match[1]}:repository/{match[3]}"
        yield Call("ecr:GetAuthorizationToken")
        for action in ("BatchCheckLayerAvailability", "GetDownloadUrlForLayer", "BatchGetImage"):
            yield Call(f"ecr:{action}", repository)


def _network(network: Mapping[str, Any]) -> Iterator[Call]:
    interface = make_arn("ec2", "network-interface/*")
    subnets = [make_arn("ec2", f"subnet/{subnet_id}") for subnet_id in network.get("Subnets", ())]
    groups = [make_arn("ec2", f"security-group/{g}") for g in network.get("SecurityGroupIds", ())]
    for resource in (*subnets, *groups, interface):
        yield Call("ec2:CreateNetworkInterface", resource)
    for subnet in subnets:
        place = values(ec2__subnet=subnet)
        for verb in ("CreateNetworkInterfacePermission", "DeleteNetworkInterface"):
            yield Call(f"ec2:{verb}", interface, place)
        yield Call("ec2:DeleteNetworkInterfacePermission", interface, place)
    yield from (Call(f"ec2:{action}") for action in _DESCRIBES)


def logging_calls(group: str, stream: str) -> Iterator[Call]:
    """Iterate over the calls with which a job's log is written."""
    yield from (log_call(action, group) for action in ("CreateLogGroup", "DescribeLogStreams"))
    yield from (log_call(action, group, stream) for action in ("CreateLogStream", "PutLogEvents"))


def metric_call(namespace: str) -> Call:
    """Return the call with which a job's metrics are recorded."""
    return Call("cloudwatch:PutMetricData", "*", values(cloudwatch__namespace=namespace))


def step_calls(
    kind: str, name: str, arguments: Mapping[str, Any], fields: Mapping[str, Any]
) -> Iterator[Call]:
    """Iterate over the calls with the pipeline's role for a step of that type.

    ``name``: of what the step makes. ``fields``: FunctionArn, SqsQueueUrl and so on.
    """
    if kind == "Lambda":
        yield Call("lambda:InvokeFunction", str(fields.get("FunctionArn")))
    if kind == "Callback":
        queue = str(fields.get("SqsQueueUrl"))
        yield Call("sqs:SendMessage", make_arn("sqs", queue.rpartition("/")[2]))
    request = step_type(kind).request
    match = re.fullmatch(r"Create(\w+?)(?:Request|Input)", request or "")
    if match is None:
        return
    if kind == "RegisterModel":
        yield from _registration(arguments)
        return
    thing, member = match[1], f"{match[1]}Name"
    step_request = {**arguments, member: arguments.get(member) or name}
    tags = [*step_request.get("Tags", ()), {"Key": "sagemaker:pipeline-execution-arn", "Value": ""}]
    yield from sagemaker_calls(f"Create{thing}", step_request | {"Tags": tags})
    yield from sagemaker_calls(f"Describe{thing}", {member: step_request[member]})


def _registration(arguments: Mapping[str, Any]) -> Iterator[Call]:
    """A package: the service makes its group, and reads the model with the caller's rights."""
    group, tags = arguments.get("ModelPackageGroupName"), arguments.get("Tags") or []
    extended_tags = [*tags, {"Key": "sagemaker:pipeline-execution-arn", "Value": ""}]
    if group and not str(group).startswith("arn:"):
        owner = {"ModelPackageGroupName": group, "Tags": extended_tags}
        yield from sagemaker_calls("CreateModelPackageGroup", owner)
    tagging = (
        {} if foreign(str(group)) else {"Tags": extended_tags}
    )  # a group of others' has its own tags
    yield from sagemaker_calls("CreateModelPackage", {**arguments, "Tags": [], **tagging})
    yield from sagemaker_calls("DescribeModelPackage", {"ModelPackageGroupName": group})
    specification = arguments.get("InferenceSpecification") or {}
    for name in ("ModelDataUrl", "S3Uri"):
        for uri in members(specification, name):
            bucket, _, key = str(uri).removeprefix("s3://").partition("/")
            yield object_call("GetObject", bucket, key)
