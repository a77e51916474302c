"""Render roles, pipeline and model package group as a CloudFormation template, or as Terraform's
JSON of a stack with it. The definition is the one that pipelines.package uploads.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipelines.compile.compilation import CompiledPipeline
from pipelines.delivery.saved_plan import DEFINITION, definition_asset
from pipelines.infrastructure.roles_stack import roles_template
from trainyard.permissions.pipeline_subject import Subject
from trainyard.permissions.role_template import dump

PIPELINE_ROLE = "PipelineRole"
"""Logical name of the pipeline's own role."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Infrastructure:
    """What is to be deployed; the rest exists already, and is referred to."""

    definition: CompiledPipeline
    subject: Subject
    with_roles: bool
    group: str | None
    """Name of the model package group to create."""

    @property
    def place(self) -> tuple[str, str]:
        """Return bucket and key of the definition."""
        asset = definition_asset(self.definition)
        return asset.bucket, f"{asset.key}/{DEFINITION}"


def template(what: Infrastructure) -> dict[str, Any]:
    """Return a CloudFormation template."""
    document: dict[str, Any] = {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": f"The SageMaker pipeline {what.definition.name}",
        "Resources": {},
    }
    if what.with_roles:
        document = roles_template(what.subject, allow_shared=False)
    role = {"Fn::GetAtt": [PIPELINE_ROLE, "Arn"]} if what.with_roles else what.definition.role
    bucket, key = what.place
    properties = {
        "PipelineName": what.definition.name,
        "PipelineDisplayName": what.definition.name,
        "PipelineDescription": what.definition.description,
        "RoleArn": role,
        "PipelineDefinition": {"PipelineDefinitionS3Location": {"Bucket": bucket, "Key": key}},
        "ParallelismConfiguration": {
            "MaxParallelExecutionSteps": what.definition.max_parallel_steps
        },
        "Tags": [{"Key": k, "Value": v} for k, v in what.definition.tags.items()],
    }
    resources = document["Resources"]
    resources["Pipeline"] = _resource("AWS::SageMaker::Pipeline", properties)
    if what.group:
        group = {"ModelPackageGroupName": what.group, "Tags": properties["Tags"]}
        resources["Group"] = _resource("AWS::SageMaker::ModelPackageGroup", group)
    return document


def _resource(kind: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    given_properties = {key: value for key, value in properties.items() if value not in ("", [])}
    return {"Type": kind, "Properties": given_properties}


def as_terraform(name: str, document: Mapping[str, Any], tags: Mapping[str, str]) -> str:
    """Return a configuration for Terraform as JSON: the template as a stack that Terraform owns.

    A parameter of the template is a variable. The file's name ends with ``.tf.json``.
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
        "template_body": literal(dump(document)),
        "parameters": {parameter: f"${{var.{parameter}}}" for parameter in variables},
        "capabilities": ["CAPABILITY_NAMED_IAM"],
        "tags": {literal(key): literal(value) for key, value in tags.items()},
    }
    provider = {"aws": {"source": "hashicorp/aws", "version": ">= 5.0"}}
    configuration = {
        "terraform": {"required_providers": provider},
        "variable": variables,
        "resource": {"aws_cloudformation_stack": {"Stack": stack}},
    }
    return json.dumps(configuration, indent=2) + "\n"


def literal(text: str) -> str:
    """Return the text with what Terraform would take for a template escaped."""
    return text.replace("${", "$${").replace("%{", "%%{")
