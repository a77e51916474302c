"""SageMaker's resources of a CloudFormation stack, created in this emulator's SageMaker.

moto runs the stack: parameters, conditions, references, order, change sets. It finds the classes
here because they are subclasses of its CloudFormationModel. A request that SageMaker refuses ends
the stack's request with the reason; a stack that was to be created is then gone, where AWS keeps
it, rolled back.
"""

import io
import uuid
from collections.abc import Callable, Mapping
from typing import Any, ClassVar
from urllib.parse import unquote, urlencode, urlsplit

from moto.cloudformation.exceptions import ValidationError
from moto.cloudformation.models import cloudformation_backends
from moto.core.common_models import CloudFormationModel
from werkzeug import Request

from trainyard.emulator.api import ApiError
from trainyard.emulator.request_scope import account, region
from trainyard.emulator.storage.object_store import ObjectStore

Call = Callable[[str, dict], dict]


class Answering:
    """Answers the stacks' requests. moto's state belongs to the process, and so does this."""

    call: Call


def _asked(operation: str, request: Mapping[str, Any], where: str) -> dict:
    """Return SageMaker's answer.

    Raises:
        ValidationError: it refuses; the message names the resource.
    """
    try:
        return Answering.call(operation, {k: v for k, v in request.items() if v is not None})
    except ApiError as refused:
        raise ValidationError(message=f"{where}: {refused.code}: {refused.message}") from None


def _properties(of: str, document: Mapping[str, Any], known: frozenset[str]) -> dict[str, Any]:
    given = document.get("Properties", {})
    if unknown := sorted(set(given) - known):
        raise ValidationError(message=f"{of}: extraneous key {unknown[0]} is not permitted")
    return {key: value for key, value in given.items() if value is not None}


class StackPipeline(CloudFormationModel):
    """``AWS::SageMaker::Pipeline``; Ref gives its name."""

    KNOWN: ClassVar = frozenset(
        "PipelineName PipelineDisplayName PipelineDescription PipelineDefinition RoleArn "
        "ParallelismConfiguration Tags".split()
    )

    def __init__(self, name: str, arn: str) -> None:
        self.name, self.arn = name, arn

    @property
    def physical_resource_id(self) -> str:
        return self.name

    @staticmethod
    def cloudformation_name_type() -> str:
        return "PipelineName"

    @staticmethod
    def cloudformation_type() -> str:
        return "AWS::SageMaker::Pipeline"

    @classmethod
    def has_cfn_attr(cls, attr: str) -> bool:
        return False

    @classmethod
    def create_from_cloudformation_json(
        cls, resource_name: str, cloudformation_json: dict, *_: Any, **__: Any
    ) -> "StackPipeline":
        given = _properties(resource_name, cloudformation_json, cls.KNOWN)
        request = _request(resource_name, given) | {"ClientRequestToken": uuid.uuid4().hex}
        made = _asked("CreatePipeline", request | {"Tags": given.get("Tags")}, resource_name)
        return cls(resource_name, made["PipelineArn"])

    @classmethod
    def update_from_cloudformation_json(
        cls,
        original_resource: "StackPipeline",
        new_resource_name: str,
        cloudformation_json: dict,
        *_: Any,
        **__: Any,
    ) -> "StackPipeline":
        given = _properties(new_resource_name, cloudformation_json, cls.KNOWN)
        if new_resource_name != original_resource.name:
            new = cls.create_from_cloudformation_json(new_resource_name, cloudformation_json)
            original_resource.delete()
            return new
        _asked("UpdatePipeline", _request(new_resource_name, given), new_resource_name)
        _tag(original_resource, given.get("Tags", []))
        return original_resource

    def delete(self, *_: Any) -> None:
        request = {"PipelineName": self.name, "ClientRequestToken": uuid.uuid4().hex}
        _asked("DeletePipeline", request, self.name)


def _request(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members that CreatePipeline and UpdatePipeline share."""
    definition = given.get("PipelineDefinition", {})
    place = definition.get("PipelineDefinitionS3Location")
    parallel = given.get("ParallelismConfiguration")
    steps = parallel and {"MaxParallelExecutionSteps": int(parallel["MaxParallelExecutionSteps"])}
    return {
        "PipelineName": name,
        "PipelineDisplayName": given.get("PipelineDisplayName"),
        "PipelineDescription": given.get("PipelineDescription"),
        "PipelineDefinition": definition.get("PipelineDefinitionBody"),
        "PipelineDefinitionS3Location": place
        and {"Bucket": place["Bucket"], "ObjectKey": place["Key"]}
        | ({"VersionId": place["Version"]} if "Version" in place else {}),
        "RoleArn": given.get("RoleArn"),
        "ParallelismConfiguration": steps,
    }


class StackPackageGroup(CloudFormationModel):
    """``AWS::SageMaker::ModelPackageGroup``; Ref gives its ARN. Only its tags can change."""

    KNOWN: ClassVar = frozenset(
        "ModelPackageGroupName ModelPackageGroupDescription ModelPackageGroupPolicy Tags".split()
    )

    def __init__(self, name: str, arn: str) -> None:
        self.name, self.arn = name, arn

    @property
    def physical_resource_id(self) -> str:
        return self.arn

    @staticmethod
    def cloudformation_name_type() -> str:
        return "ModelPackageGroupName"

    @staticmethod
    def cloudformation_type() -> str:
        return "AWS::SageMaker::ModelPackageGroup"

    @classmethod
    def has_cfn_attr(cls, attr: str) -> bool:
        return attr == "ModelPackageGroupArn"

    def get_cfn_attribute(self, _: str) -> str:
        return self.arn

    @classmethod
    def create_from_cloudformation_json(
        cls, resource_name: str, cloudformation_json: dict, *_: Any, **__: Any
    ) -> "StackPackageGroup":
        given = _properties(resource_name, cloudformation_json, cls.KNOWN)
        if policy := given.pop("ModelPackageGroupPolicy", None):
            raise ValidationError(message=f"{resource_name}: a policy ({policy}) is not kept here")
        given["ModelPackageGroupName"] = resource_name
        made = _asked("CreateModelPackageGroup", given, resource_name)
        return cls(resource_name, made["ModelPackageGroupArn"])

    @classmethod
    def update_from_cloudformation_json(
        cls,
        original_resource: "StackPackageGroup",
        new_resource_name: str,
        cloudformation_json: dict,
        *_: Any,
        **__: Any,
    ) -> "StackPackageGroup":
        group = original_resource
        given = _properties(new_resource_name, cloudformation_json, cls.KNOWN)
        there = _asked(
            "DescribeModelPackageGroup", {"ModelPackageGroupName": group.name}, group.name
        )
        for member in cls.KNOWN - {"Tags"}:
            if given.get(member) != there.get(member):
                said = f"{member} changes, so CloudFormation replaces the group with its packages"
                raise ValidationError(message=f"{group.name}: {said}: not done here")
        _tag(group, given.get("Tags", []))
        return group

    def delete(self, *_: Any) -> None:
        request = {"ModelPackageGroupName": self.name}
        _asked("DeleteModelPackageGroup", request, self.name)


def _tag(resource: StackPipeline | StackPackageGroup, tags: list[dict[str, str]]) -> None:
    """Give the resource these tags, and take all others from it."""
    there = _asked("ListTags", {"ResourceArn": resource.arn}, resource.name)["Tags"]
    gone = [tag["Key"] for tag in there if tag["Key"] not in {new["Key"] for new in tags}]
    if gone:
        _asked("DeleteTags", {"ResourceArn": resource.arn, "TagKeys": gone}, resource.name)
    if tags:
        _asked("AddTags", {"ResourceArn": resource.arn, "Tags": tags}, resource.name)


def missing_change_set(request: Request) -> str:
    """Return the name of the change set that a request is about and that does not exist, which moto
    calls a stack that does not; else an empty text.
    """
    name = request.form.get("ChangeSetName", "")
    sets = cloudformation_backends[account()][region()].change_sets
    known = {name for key, each in sets.items() for name in (key, each.change_set_name)}
    creates = request.form.get("Action") == "CreateChangeSet"
    return "" if creates or name in known else name


def roll_back(name: str) -> None:
    """Delete a stack of that name whose creation was refused, with all that it had created."""
    backend = cloudformation_backends[account()][region()]
    for stack in list(backend.stacks.values()):
        if stack.name == name and stack.status in ("CREATE_IN_PROGRESS", "REVIEW_IN_PROGRESS"):
            backend.delete_stack(stack.stack_id)


def with_body(request: Request, objects: ObjectStore) -> Request:
    """Return the request with the template that its TemplateURL names, read from this S3.

    Raises:
        ApiError: this S3 holds no object at the address.
    """
    form = request.form.to_dict()
    url = urlsplit(form.pop("TemplateURL"))
    bucket, _, key = unquote(url.path).lstrip("/").partition("/")
    host = url.hostname or ""
    if ".s3." in host or ".s3-" in host:
        bucket, key = host.partition(".s3")[0], unquote(url.path).lstrip("/")
    form["TemplateBody"] = objects.read_bytes(bucket, key).decode()
    data = urlencode(form).encode()
    changed = {"wsgi.input": io.BytesIO(data), "CONTENT_LENGTH": str(len(data))}
    found = Request({**request.environ, **changed})
    found.get_data()  # cached: whoever reads the form first would leave nothing for moto
    return found
