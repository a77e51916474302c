"""SageMaker resources of a CloudFormation stack, created in this emulator's SageMaker.

moto runs the stack: parameters, conditions, references, order and change sets. It finds the classes
of this module because they are subclasses of its CloudFormationModel. If SageMaker refuses a
resource, the request on the stack fails with the reason. A stack that was to be created is then
deleted, whereas AWS keeps it in the status of a rolled-back stack.
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

from trainyard.emulator.request_scope import ApiError, read_account, read_region
from trainyard.emulator.s3.object_store import ObjectStore

Call = Callable[[str, dict], dict]


class Answering:
    """Holds the function that answers SageMaker requests of stacks.

    It belongs to the process, as moto's data does.
    """

    call: Call


def _call_sagemaker(operation: str, request: Mapping[str, Any], resource_name: str) -> dict:
    """Return SageMaker's response to an operation.

    Raises:
        ValidationError: SageMaker refuses; the message names the resource.
    """
    try:
        return Answering.call(operation, {k: v for k, v in request.items() if v is not None})
    except ApiError as refusal:
        raise ValidationError(
            message=f"{resource_name}: {refusal.code}: {refusal.message}"
        ) from None


def _read_properties(
    resource_name: str, document: Mapping[str, Any], allowed_keys: frozenset[str]
) -> dict[str, Any]:
    """Return the resource's properties that are set. Raises ValidationError for unknown ones."""
    properties = document.get("Properties", {})
    if unknown := sorted(set(properties) - allowed_keys):
        raise ValidationError(
            message=f"{resource_name}: extraneous key {unknown[0]} is not permitted"
        )
    return {key: value for key, value in properties.items() if value is not None}


class StackPipeline(CloudFormationModel):
    """``AWS::SageMaker::Pipeline``; Ref returns its name."""

    PROPERTY_NAMES: ClassVar = frozenset(
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
        properties = _read_properties(resource_name, cloudformation_json, cls.PROPERTY_NAMES)
        request = _build_pipeline_request(resource_name, properties) | {
            "ClientRequestToken": uuid.uuid4().hex
        }
        answer = _call_sagemaker(
            "CreatePipeline", request | {"Tags": properties.get("Tags")}, resource_name
        )
        return cls(resource_name, answer["PipelineArn"])

    @classmethod
    def update_from_cloudformation_json(
        cls,
        original_resource: "StackPipeline",
        new_resource_name: str,
        cloudformation_json: dict,
        *_: Any,
        **__: Any,
    ) -> "StackPipeline":
        properties = _read_properties(new_resource_name, cloudformation_json, cls.PROPERTY_NAMES)
        if new_resource_name != original_resource.name:
            new = cls.create_from_cloudformation_json(new_resource_name, cloudformation_json)
            original_resource.delete()
            return new
        _call_sagemaker(
            "UpdatePipeline",
            _build_pipeline_request(new_resource_name, properties),
            new_resource_name,
        )
        _set_tags(original_resource, properties.get("Tags", []))
        return original_resource

    def delete(self, *_: Any) -> None:
        request = {"PipelineName": self.name, "ClientRequestToken": uuid.uuid4().hex}
        _call_sagemaker("DeletePipeline", request, self.name)


def _build_pipeline_request(name: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members that CreatePipeline and UpdatePipeline have in common."""
    definition = properties.get("PipelineDefinition", {})
    location = definition.get("PipelineDefinitionS3Location")
    parallel = properties.get("ParallelismConfiguration")
    steps = parallel and {"MaxParallelExecutionSteps": int(parallel["MaxParallelExecutionSteps"])}
    return {
        "PipelineName": name,
        "PipelineDisplayName": properties.get("PipelineDisplayName"),
        "PipelineDescription": properties.get("PipelineDescription"),
        "PipelineDefinition": definition.get("PipelineDefinitionBody"),
        "PipelineDefinitionS3Location": location
        and {"Bucket": location["Bucket"], "ObjectKey": location["Key"]}
        | ({"VersionId": location["Version"]} if "Version" in location else {}),
        "RoleArn": properties.get("RoleArn"),
        "ParallelismConfiguration": steps,
    }


class StackPackageGroup(CloudFormationModel):
    """``AWS::SageMaker::ModelPackageGroup``; Ref returns its ARN. Only its tags can change."""

    PROPERTY_NAMES: ClassVar = frozenset(
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
        properties = _read_properties(resource_name, cloudformation_json, cls.PROPERTY_NAMES)
        if policy := properties.pop("ModelPackageGroupPolicy", None):
            raise ValidationError(
                message=f"{resource_name}: ModelPackageGroupPolicy {policy} is not supported here"
            )
        properties["ModelPackageGroupName"] = resource_name
        answer = _call_sagemaker("CreateModelPackageGroup", properties, resource_name)
        return cls(resource_name, answer["ModelPackageGroupArn"])

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
        properties = _read_properties(new_resource_name, cloudformation_json, cls.PROPERTY_NAMES)
        description = _call_sagemaker(
            "DescribeModelPackageGroup", {"ModelPackageGroupName": group.name}, group.name
        )
        for member in cls.PROPERTY_NAMES - {"Tags"}:
            if properties.get(member) != description.get(member):
                problem = (
                    f"{member} changes, so CloudFormation would replace the group with its packages"
                )
                raise ValidationError(
                    message=f"{group.name}: {problem}, which is not supported here"
                )
        _set_tags(group, properties.get("Tags", []))
        return group

    def delete(self, *_: Any) -> None:
        request = {"ModelPackageGroupName": self.name}
        _call_sagemaker("DeleteModelPackageGroup", request, self.name)


def _set_tags(resource: StackPipeline | StackPackageGroup, tags: list[dict[str, str]]) -> None:
    """Set the tags of a resource to ``tags``; remove all others."""
    existing_tags = _call_sagemaker("ListTags", {"ResourceArn": resource.arn}, resource.name)[
        "Tags"
    ]
    tag_keys = {tag["Key"] for tag in tags}
    removed_keys = [tag["Key"] for tag in existing_tags if tag["Key"] not in tag_keys]
    if removed_keys:
        request = {"ResourceArn": resource.arn, "TagKeys": removed_keys}
        _call_sagemaker("DeleteTags", request, resource.name)
    if tags:
        _call_sagemaker("AddTags", {"ResourceArn": resource.arn, "Tags": tags}, resource.name)


def find_missing_change_set(request: Request) -> str:
    """Return the name of the change set that a request names, if it does not exist; else "".

    It is checked here because moto reports a stack that does not exist instead.
    """
    name = request.form.get("ChangeSetName", "")
    sets = cloudformation_backends[read_account()][read_region()].change_sets
    names = {name for key, change_set in sets.items() for name in (key, change_set.change_set_name)}
    creates = request.form.get("Action") == "CreateChangeSet"
    return "" if creates or name in names else name


def roll_back_stack(name: str) -> None:
    """Delete the stack of that name, whose creation was refused, and all that it has created."""
    backend = cloudformation_backends[read_account()][read_region()]
    for stack in list(backend.stacks.values()):
        if stack.name == name and stack.status in ("CREATE_IN_PROGRESS", "REVIEW_IN_PROGRESS"):
            backend.delete_stack(stack.stack_id)


def inline_template(request: Request, objects: ObjectStore) -> Request:
    """Return the request with its TemplateURL replaced by the text of that template.

    The template is read from this S3.

    Raises:
        ApiError: this S3 has no object at the address.
    """
    form = request.form.to_dict()
    url = urlsplit(form.pop("TemplateURL"))
    bucket, _, key = unquote(url.path).lstrip("/").partition("/")
    host = url.hostname or ""
    if ".s3." in host or ".s3-" in host:
        bucket, key = host.partition(".s3")[0], unquote(url.path).lstrip("/")
    form["TemplateBody"] = objects.read_bytes(bucket, key).decode()
    data = urlencode(form).encode()
    overrides = {"wsgi.input": io.BytesIO(data), "CONTENT_LENGTH": str(len(data))}
    result = Request({**request.environ, **overrides})
    result.get_data()  # cached, because moto could not read the form after another reader
    return result
