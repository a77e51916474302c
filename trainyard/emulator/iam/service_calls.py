"""The permissions that a request to SageMaker, or to any other service except S3, needs.

Source: Service Authorization Reference, the pages of the services.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from werkzeug import Request

from trainyard.emulator.request_scope import find_other_account, make_arn, read_account
from trainyard.emulator.rest_requests import parse_form_list, parse_json_object
from trainyard.emulator.services.moto_operations import find_operation_name

# A call as IAM sees it: an action on a resource, with the condition keys that are known about it.


@dataclass(frozen=True, slots=True)
class Call:
    """One action on one resource."""

    action: str
    resource: str = "*"
    context: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Mapping of a condition key, in lower case, to its values."""

    known_keys: frozenset[str] = frozenset()
    """Condition keys of the service that this request could have, whether it has them or not."""


def build_condition_keys(**keys: Any) -> dict[str, tuple[str, ...]]:
    """Return the condition keys that have a value; ``__`` in a name stands for the colon."""
    return {
        name.replace("__", ":"): to_iam_texts(value)
        for name, value in keys.items()
        if value is not None
    }


def to_iam_texts(value: Any) -> tuple[str, ...]:
    """Return a request's value as strings of IAM, one per list item. True becomes ``true``."""
    several: Iterable[Any] = value if isinstance(value, list | tuple) else [value]
    return tuple(
        str(element).lower() if isinstance(element, bool) else str(element) for element in several
    )


SAGEMAKER = "sagemaker.amazonaws.com"
_ROLE_MEMBERS = ("RoleArn", "ExecutionRoleArn", "Role")
_PASSING = re.compile("(Create|Update|Start|Put)")
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_KINDS = {"AutoMLJob": "automl-job", "AutoMLJobV2": "automl-job"}
_MEMBERS = {
    "sagemaker:ModelApprovalStatus": ("ModelApprovalStatus",),
    "sagemaker:InstanceTypes": ("InstanceType",),
    "sagemaker:VolumeKmsKey": ("VolumeKmsKeyId",),
    "sagemaker:OutputKmsKey": ("KmsKeyId",),
    "sagemaker:VpcSubnets": ("Subnets",),
    "sagemaker:VpcSecurityGroupIds": ("SecurityGroupIds",),
    "sagemaker:NetworkIsolation": ("EnableNetworkIsolation",),
    "sagemaker:InterContainerTrafficEncryption": ("EnableInterContainerTrafficEncryption",),
    "sagemaker:MaxRuntimeInSeconds": ("MaxRuntimeInSeconds",),
}
"""Mapping of a condition key to the members, at any depth, that give its values."""
_OF_SESSIONS = frozenset(
    {"sts:externalid", "sts:rolesessionname", "sts:sourceidentity", "sts:transitivetagkeys"}
    | {"aws:requesttag/", "aws:tagkeys"}
)
_TAGGING = frozenset({"aws:requesttag/", "aws:tagkeys"})
_KNOWN_KEYS = frozenset(key.lower() for key in _MEMBERS) | _TAGGING


def iter_sagemaker_calls(operation: str, request: Mapping[str, Any]) -> Iterator[Call]:
    """Iterate over the calls that a SageMaker operation needs, PassRole included."""
    context = {
        key.lower(): key_values
        for key, names in _MEMBERS.items()
        if (
            key_values := tuple(
                t for name in names for v in iter_members(request, name) for t in to_iam_texts(v)
            )
        )
    } | build_tag_keys(request.get("Tags"))
    resource = _find_sagemaker_resource(operation, request)
    yield Call(f"sagemaker:{operation}", resource, context, _KNOWN_KEYS)
    if operation in ("CreateEndpoint", "UpdateEndpoint"):
        config = make_arn("sagemaker", f"endpoint-config/{request.get('EndpointConfigName', '')}")
        yield Call(f"sagemaker:{operation}", config, context, _KNOWN_KEYS)
    if request.get("Tags") and operation.startswith("Create"):
        yield Call("sagemaker:AddTags", resource, build_tag_keys(request["Tags"]), _KNOWN_KEYS)
    if _PASSING.match(operation):
        yield from iter_pass_role_calls(request, SAGEMAKER)


def iter_pass_role_calls(request: Mapping[str, Any], service: str) -> Iterator[Call]:
    """Iterate over one PassRole call for each role that a request passes to a service."""
    roles = {
        role
        for name in _ROLE_MEMBERS
        for role in iter_members(request, name)
        if isinstance(role, str) and ":role/" in role
    }
    for role in sorted(roles):
        context = build_condition_keys(iam__passedtoservice=service)
        yield Call("iam:PassRole", role, context, frozenset({"iam:associatedresourcearn"}))


def iter_members(value: Any, name: str) -> Iterator[Any]:
    """Iterate over the values of all members with that name, at any depth."""
    for child in value if isinstance(value, list) else ():
        yield from iter_members(child, name)
    for member, child in value.items() if isinstance(value, Mapping) else ():
        if member == name:
            yield child
        yield from iter_members(child, name)


def build_tag_keys(tags: Any) -> dict[str, tuple[str, ...]]:
    """Return the condition keys for ``tags``, a request's list of Key and Value."""
    if not isinstance(tags, list) or not all(isinstance(tag, Mapping) for tag in tags):
        return {}
    key_values = {
        f"aws:requesttag/{str(t.get('Key')).lower()}": to_iam_texts(t.get("Value")) for t in tags
    }
    return key_values | (
        {"aws:tagkeys": tuple(str(tag.get("Key")) for tag in tags)} if tags else {}
    )


def _find_sagemaker_resource(operation: str, request: Mapping[str, Any]) -> str:
    """Return the ARN that the request names or creates; ``*`` if it names none."""
    if arn := request.get("PipelineExecutionArn") or request.get("ResourceArn"):
        return str(arn)
    kind = re.sub(r"^[A-Z][a-z]+", "", operation)
    if kind.startswith("ModelPackage") and not kind.startswith("ModelPackageGroup"):
        return _build_package_arn(request)
    # Of the operation's noun, take the longest beginning after which a member is named:
    # CreateTrainingJob has the member TrainingJobName.
    for length in range(len(kind), 2, -1):
        for name in (f"{kind[:length]}Arn", f"{kind[:length]}Name"):
            if isinstance(request.get(name), str):
                return _build_arn(kind[:length], request[name])
    return "*"


def _build_arn(kind: str, name: str) -> str:
    """Return the ARN of a SageMaker resource; ``name`` may already be an ARN."""
    if name.startswith("arn:"):
        return name
    resource = _KINDS.get(kind) or _WORDS.sub("-", kind).lower()
    return make_arn("sagemaker", f"{resource}/{name}")


def _build_package_arn(request: Mapping[str, Any]) -> str:
    """Return a model package's ARN; if it has no version yet, a pattern for all of its group."""
    name = request.get("ModelPackageName") or request.get("ModelPackageArn")
    if name:
        return _build_arn("ModelPackage", str(name))
    group = str(request.get("ModelPackageGroupName") or "")
    owner = group.split(":")[4] if group.startswith("arn:") else read_account()
    arn = make_arn("sagemaker", f"model-package/{group.rpartition('/')[2]}/*")
    return arn.replace(f":{read_account()}:", f":{owner}:") if group else "*"


# The other services.


def make_key_call(action: str, key: str, **context: str) -> Call:
    """Return a call of an action on a KMS key; an alias means any key with that alias."""
    plain = key.rpartition(":")[2]
    known_keys = frozenset({"kms:resourcealiases", "kms:grantisforawsresource"})
    if plain.startswith("alias/"):
        context["kms__resourcealiases"] = plain
        arn = f"{key.rpartition(':')[0]}:key/*" if ":" in key else make_arn("kms", "key/*")
    else:
        arn = key if ":" in key else make_arn("kms", f"key/{plain}")
    return Call(f"kms:{action}", arn, build_condition_keys(**context), known_keys)


def make_log_call(action: str, group: str, stream: str = "") -> Call:
    """Return a call of an action on a log group, or on one of its streams."""
    return Call(f"logs:{action}", make_arn("logs", f"log-group:{group}:log-stream:{stream}"))


def _iter_logs_calls(operation: str, request: Mapping[str, Any]) -> Iterator[Call]:
    group = request.get("logGroupName") or str(request.get("logGroupIdentifier", "*"))
    streams = operation in ("PutLogEvents", "GetLogEvents", "CreateLogStream", "DeleteLogStream")
    stream = request.get("logStreamName", "") if streams else ""
    yield make_log_call(operation, group.partition("log-group:")[2] or group, stream)


def _iter_events_calls(operation: str, request: Mapping[str, Any]) -> Iterator[Call]:
    name = request.get("Rule") or (request.get("Name") if operation.endswith("Rule") else None)
    yield Call(f"events:{operation}", make_arn("events", f"rule/{name}") if name else "*")
    yield from iter_pass_role_calls(request, "events.amazonaws.com")


def _iter_sqs_calls(operation: str, request: Mapping[str, Any]) -> Iterator[Call]:
    name = str(request.get("QueueUrl") or request.get("QueueName") or "*").rpartition("/")[2]
    yield Call(f"sqs:{operation}", make_arn("sqs", name))


def _iter_sns_calls(operation: str, request: Mapping[str, Any]) -> Iterator[Call]:
    yield Call(f"sns:{operation}", str(request.get("TopicArn") or "*"))


def _iter_kms_calls(operation: str, request: Mapping[str, Any]) -> Iterator[Call]:
    key = str(request.get("KeyId") or "*")
    is_resource = key.startswith("arn:") or key == "*"
    yield Call(f"kms:{operation}", key if is_resource else make_arn("kms", f"key/{key}"))


def _iter_iam_calls(operation: str, request: Mapping[str, Any]) -> Iterator[Call]:
    for kind in ("Role", "User", "Policy", "Group"):
        if name := request.get(f"{kind}Name") if kind.lower() in operation.lower() else None:
            yield Call(f"iam:{operation}", f"arn:aws:iam::{read_account()}:{kind.lower()}/{name}")
            return
    yield Call(f"iam:{operation}", str(request.get("PolicyArn") or "*"))


def _iter_sts_calls(operation: str, request: Mapping[str, Any]) -> Iterator[Call]:
    """Iterate over the AssumeRole call, and the TagSession call if the request has tags.

    GetCallerIdentity needs no permission (IAM user guide).
    """
    if operation != "AssumeRole":
        return
    context = build_tag_keys(parse_form_list(request, "Tags")) | build_condition_keys(
        sts__externalid=request.get("ExternalId"),
        sts__rolesessionname=request.get("RoleSessionName"),
        sts__transitivetagkeys=parse_form_list(request, "TransitiveTagKeys") or None,
    )
    actions = ["AssumeRole", "TagSession"] if parse_form_list(request, "Tags") else ["AssumeRole"]
    for action in actions:
        yield Call(f"sts:{action}", str(request.get("RoleArn")), context, _OF_SESSIONS)


def _iter_metrics_calls(operation: str, request: Mapping[str, Any]) -> Iterator[Call]:
    if alarm := request.get("AlarmName"):
        yield Call(f"cloudwatch:{operation}", make_arn("cloudwatch", f"alarm:{alarm}"))
        return
    yield Call(
        f"cloudwatch:{operation}",
        "*",
        build_condition_keys(cloudwatch__namespace=request.get("Namespace")),
    )


_SERVICES: dict[str, Callable[[str, Mapping[str, Any]], Iterator[Call]]] = {
    "sagemaker": iter_sagemaker_calls,
    "logs": _iter_logs_calls,
    "events": _iter_events_calls,
    "sqs": _iter_sqs_calls,
    "sns": _iter_sns_calls,
    "kms": _iter_kms_calls,
    "iam": _iter_iam_calls,
    "sts": _iter_sts_calls,
    "monitoring": _iter_metrics_calls,
}
_FUNCTION = re.compile(r"/[\d-]+/functions/(?P<name>[^/]+)(?P<rest>/invocations)?")
_ENDPOINT = re.compile(r"/endpoints/(?P<name>[^/]+)/(?P<verb>invocations|async-invocations)")


def iter_service_calls(service: str, request: Request) -> Iterator[Call]:
    """Iterate over the calls that a request needs; ``service`` is its signing name.

    For a service that is not in ``_SERVICES`` the resource is not known: it is ``*``.
    """
    if service == "lambda" and (match := _FUNCTION.match(request.path)):
        verb = "InvokeFunction" if match["rest"] else find_operation_name(service, request)
        name = unquote(match["name"])
        plain = name.rpartition("function:")[2].partition(":")[0]
        arn = name if name.startswith("arn:") else make_arn("lambda", f"function:{plain}")
        yield Call(f"lambda:{verb}", arn)
        return
    if service == "sagemaker" and (match := _ENDPOINT.match(request.path)):
        verb = "InvokeEndpointAsync" if match["verb"].startswith("async") else "InvokeEndpoint"
        yield Call(f"sagemaker:{verb}", make_arn("sagemaker", f"endpoint/{match['name']}"))
        return
    operation = find_operation_name(service, request)
    list_calls = _SERVICES.get(service)
    if list_calls is None:
        yield Call(f"{service}:{operation}")
        return
    form = request.values.to_dict() if "Action" in request.values else {}
    yield from list_calls(operation, form or parse_json_object(request.get_data() or b"{}"))


def find_key_owner(service: str, request: Request) -> str:
    """Return the account that owns the key of a request to KMS, if it is not the current account.

    The request names the key by its ARN. Return "" for all other requests.
    """
    if service != "kms":
        return ""
    return find_other_account(str(parse_json_object(request.get_data() or b"{}").get("KeyId", "")))
