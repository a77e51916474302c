"""Render the templates of infra/ for a recipe: storage, messages, CI, and what an endpoint needs.

The recipe's values replace the defaults of parameters, and what a template imports from another
stack. So a rendered template refers to no stack of ours. Values that are not in the recipe (the
repository, an address) stay parameters, which are variables in Terraform.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from pipelines.compile.compilation import CompiledPipeline
from pipelines.delivery.saved_plan import DEFINITION, build_definition_asset
from pipelines.infrastructure.roles_stack import build_roles_template
from pipelines.recipe.sections import Aws
from trainyard.common.errors import DefinitionError
from trainyard.permissions.pipeline_subject import Subject, build_key_arn
from trainyard.permissions.role_template import dump_yaml, list_roles, parse_template
from trainyard.permissions.step_requests import list_job_roles

FOLDER = Path(__file__).resolve().parents[2] / "infra"


class Part(StrEnum):
    """A template of infra/ that can be rendered; the value is its file's name without suffix."""

    STORAGE = "storage"
    MESSAGES = "events"
    CODEPIPELINE = "ci"
    GITHUB = "github"
    GITLAB = "gitlab"
    SERVING = "serving"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Facts about a pipeline from which a template is rendered."""

    definition: CompiledPipeline
    subject: Subject
    aws: Aws
    recipe: str
    """Path of the recipe in the repository."""
    with_key: bool
    """Whether the storage template creates a key; if not, it refers to the recipe's."""

    @property
    def key(self) -> str | None:
        """Return the ARN of the recipe's KMS key; None if it has none."""
        key = self.definition.kms_key
        return build_key_arn(self.subject, key) if key else None

    @property
    def bucket(self) -> str:
        """Return the name of the artifact bucket."""
        return self.definition.assets[0].bucket

    def list_parameter_defaults(self, part: Part) -> dict[str, str]:
        """Return the template's parameters, by name, with the values that the recipe gives them."""
        name = self.definition.name
        values = {
            "PipelineName": name,
            "ArtifactBucketName": self.bucket,
            "Root": f"{self.aws.prefix}/{name}",
            "Recipe": self.recipe,
        }
        if part in (Part.CODEPIPELINE, Part.SERVING):  # github.yaml has another Environment
            values["Environment"] = self.definition.environment or ""
        if release := self.subject.application:
            values["Endpoint"] = release.deploy.endpoint
            values["ModelPackageGroup"] = release.package.split("/")[1]
        for key, value in [*self.definition.tags.items()][:1]:
            values |= {"TagKey": key, "TagValue": value}
        return values

    def list_imports(self) -> dict[str, str | None]:
        """Return the exports of other stacks, by name, with their values in this account."""
        subject = self.subject
        role_properties = {
            r.logical: r.resource(subject, {})["Properties"] for r in list_roles(subject)
        }
        arn_prefix = f"arn:{self.subject.partition}:iam::{self.subject.account}"
        exports: dict[str, str | None] = {"ArtifactBucket": self.bucket, "KmsKeyArn": self.key}
        for logical, properties in role_properties.items():
            kind, name = "role", properties.get("RoleName")
            if name is None:
                kind, name = "policy", properties["ManagedPolicyName"]
            exports[f"{logical}Arn"] = f"{arn_prefix}:{kind}{properties.get('Path', '/')}{name}"
        return exports | {
            "PipelineRoleArn": self.subject.role,
            "JobRoleArn": list_job_roles(self.subject)[0],
        }

    def list_variables(self) -> dict[str, str]:
        """Return the variables, by name, that the workflows of GitHub and GitLab read."""
        values = {
            "AWS_REGION": self.subject.region,
            "ARTIFACT_BUCKET": self.bucket,
            "SAGEMAKER_PIPELINE_ROLE_ARN": self.subject.role,
            "SAGEMAKER_JOB_ROLE_ARN": list_job_roles(self.subject)[0],
            "RECIPE": self.recipe,
        }
        return values | (
            {"ENVIRONMENT": self.definition.environment} if self.definition.environment else {}
        )


def render_template(part: Part, facts: Facts) -> dict[str, Any]:
    """Return the template for the recipe, as a CloudFormation document.

    Raises:
        DefinitionError: CodeBuild cannot be used with this key or in this partition, or the recipe
            has no endpoint.
    """
    file = FOLDER / f"{part}.yaml"
    document = parse_template(file.read_text(encoding="utf-8"), str(file))
    if part in BUILDS and (reason := _explain_unfit_part(part, facts)):
        raise DefinitionError(f"{BUILDS[part]}: {reason}")
    imports = facts.list_imports()
    if part is Part.STORAGE and not facts.with_key:
        del document["Resources"]["Key"], document["Outputs"]["KmsKeyArn"]
        imports["Key"] = imports["KmsKeyArn"]
    if part is Part.SERVING and "MonitorPolicyArn" not in imports:
        _remove_condition(
            document, "WithMonitor", {"MonitorSchedule", "MonitorStarts", "StartParameter"}
        )
    document = _resolve_imports(document, imports)
    parameters = document["Parameters"]
    for name in ("StorageStack", "RolesStack"):
        parameters.pop(name, None)
    for name, value in facts.list_parameter_defaults(part).items():
        if name in parameters:
            parameters[name]["Default"] = value
    return document


BUILDS = {Part.CODEPIPELINE: "--ci codepipeline", Part.SERVING: "--part serving"}
"""Templates that contain CodeBuild builds, each with the option that requests it."""


def _remove_condition(document: dict[str, Any], condition: str, parameters: set[str]) -> None:
    """Remove the condition, which never holds, and its resources and parameters."""
    document["Resources"] = {
        name: resource
        for name, resource in document["Resources"].items()
        if resource.get("Condition") != condition
    }
    rights = document["Resources"]["RuleRole"]["Properties"]["Policies"][0]["PolicyDocument"]
    # Keep only the rule's first resource, the build of the deployment.
    del rights["Statement"][0]["Resource"][1:]
    for name in parameters:
        del document["Parameters"][name]
    del document["Conditions"][condition]


def _explain_unfit_part(part: Part, facts: Facts) -> str | None:
    """Return why ``part`` cannot be rendered for this recipe; None if it can."""
    if part is Part.SERVING and facts.subject.application is None:
        return "the recipe has no endpoint; set deploy: {endpoint: NAME}"
    if facts.key and ":alias/" in facts.key:
        return (
            f"aws.kms_key is {facts.definition.kms_key}; the builds' roles and logs need the key "
            "itself, because no policy can name it by an alias: set the key's ARN or ID"
        )
    if facts.subject.partition == "aws-cn":  # according to the schemas in cfn-lint
        return (
            "China's CloudFormation has no AWS::CodeConnections::Connection; use github or gitlab"
        )
    return None


OMISSION = object()


def _resolve_imports(node: Any, imports: Mapping[str, str | None]) -> Any:
    """Return the node with imports replaced by their values.

    If the recipe has no key, whatever refers to one is left out: a property, a stage's
    EncryptionKey, or a statement of a policy.
    """
    if isinstance(node, list):
        result = [_resolve_imports(item, imports) for item in node]
        return [item for item in result if item is not OMISSION]
    if not isinstance(node, dict):
        return node
    if "Fn::ImportValue" in node:
        name = node["Fn::ImportValue"]["Fn::Sub"].rpartition("-")[2]
        return imports[name] or OMISSION
    if node.get("Fn::GetAtt") == ["Key", "Arn"] and "Key" in imports:
        return imports["Key"] or OMISSION
    result = {key: _resolve_imports(value, imports) for key, value in node.items()}
    if OMISSION in (result.get("Resource"), result.get("Id")):
        return OMISSION
    return {key: value for key, value in result.items() if value is not OMISSION}


# Render roles, pipeline and model package group as a CloudFormation template, or as Terraform's
# JSON of a stack with this template. The definition is the one that pipelines.package uploads.

PIPELINE_ROLE = "PipelineRole"
"""Logical name of the pipeline's own role."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Infrastructure:
    """Resources that the stack creates; all others that it refers to must exist already."""

    definition: CompiledPipeline
    subject: Subject
    with_roles: bool
    group: str | None
    """Name of the model package group to create; None to create none."""

    @property
    def definition_location(self) -> tuple[str, str]:
        """Return (bucket, key) of the definition."""
        asset = build_definition_asset(self.definition)
        return asset.bucket, f"{asset.key}/{DEFINITION}"


def build_template(stack: Infrastructure) -> dict[str, Any]:
    """Return the CloudFormation template of a pipeline, its roles and its group."""
    document: dict[str, Any] = {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": f"The SageMaker pipeline {stack.definition.name}",
        "Resources": {},
    }
    if stack.with_roles:
        document = build_roles_template(stack.subject, allow_shared=False)
    role = {"Fn::GetAtt": [PIPELINE_ROLE, "Arn"]} if stack.with_roles else stack.definition.role
    bucket, key = stack.definition_location
    properties = {
        "PipelineName": stack.definition.name,
        "PipelineDisplayName": stack.definition.name,
        "PipelineDescription": stack.definition.description,
        "RoleArn": role,
        "PipelineDefinition": {"PipelineDefinitionS3Location": {"Bucket": bucket, "Key": key}},
        "ParallelismConfiguration": {
            "MaxParallelExecutionSteps": stack.definition.max_parallel_steps
        },
        "Tags": [{"Key": k, "Value": v} for k, v in stack.definition.tags.items()],
    }
    resources = document["Resources"]
    resources["Pipeline"] = _build_resource("AWS::SageMaker::Pipeline", properties)
    if stack.group:
        group = {"ModelPackageGroupName": stack.group, "Tags": properties["Tags"]}
        resources["Group"] = _build_resource("AWS::SageMaker::ModelPackageGroup", group)
    return document


def _build_resource(kind: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return a resource of this type, without empty properties."""
    given_properties = {key: value for key, value in properties.items() if value not in ("", [])}
    return {"Type": kind, "Properties": given_properties}


def as_terraform(name: str, document: Mapping[str, Any], tags: Mapping[str, str]) -> str:
    """Return a Terraform configuration as JSON: a CloudFormation stack with the template.

    Each parameter of the template becomes a variable. The file's name must end with ``.tf.json``.
    """
    variables = {
        parameter: {
            "type": "string",
            "description": declaration.get("Description", parameter),
            **(
                {"default": declaration["Default"]}
                if declaration.get("Default") is not None
                else {}
            ),
        }
        for parameter, declaration in document.get("Parameters", {}).items()
    }
    stack = {
        "name": name,
        "template_body": escape_terraform(dump_yaml(document)),
        "parameters": {parameter: f"${{var.{parameter}}}" for parameter in variables},
        "capabilities": ["CAPABILITY_NAMED_IAM"],
        "tags": {escape_terraform(key): escape_terraform(value) for key, value in tags.items()},
    }
    provider = {"aws": {"source": "hashicorp/aws", "version": ">= 5.0"}}
    configuration = {
        "terraform": {"required_providers": provider},
        "variable": variables,
        "resource": {"aws_cloudformation_stack": {"Stack": stack}},
    }
    return json.dumps(configuration, indent=2) + "\n"


def escape_terraform(text: str) -> str:
    """Return the text with Terraform's template sequences (``${``, ``%{``) escaped."""
    return text.replace("${", "$${").replace("%{", "%%{")
