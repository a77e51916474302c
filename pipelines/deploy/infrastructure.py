"""Render roles, pipeline and model package group, as CloudFormation or as Terraform's JSON.

Both come from the same derived policies and the same definition, which pipelines.package uploads.
Terraform's attributes are those of the provider hashicorp/aws 6.25.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipelines.compile.compilation import CompiledPipeline
from pipelines.deploy.roles_stack import roles_template
from pipelines.deploy.uploads import DEFINITION, definition_asset
from trainyard.permissions.derived_roles import derive
from trainyard.permissions.pipeline_subject import Subject
from trainyard.permissions.role_table import roles
from trainyard.permissions.role_template import BOUNDARY, dump, role_resources

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


def cloudformation(what: Infrastructure) -> str:
    """Return a CloudFormation template as YAML."""
    document: dict[str, Any] = {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": f"The SageMaker pipeline {what.definition.name}",
        "Resources": {},
    }
    if what.with_roles:
        document = roles_template(what.subject, shared=False)
    own = {"Fn::GetAtt": [PIPELINE_ROLE, "Arn"]} if what.with_roles else what.definition.role
    bucket, key = what.place
    properties = {
        "PipelineName": what.definition.name,
        "PipelineDisplayName": what.definition.name,
        "PipelineDescription": what.definition.description,
        "RoleArn": own,
        "PipelineDefinition": {"PipelineDefinitionS3Location": {"Bucket": bucket, "Key": key}},
        "ParallelismConfiguration": {
            "MaxParallelExecutionSteps": what.definition.max_parallel_steps
        },
        "Tags": [{"Key": k, "Value": v} for k, v in what.definition.tags.items()],
    }
    resources = document["Resources"]
    resources["Pipeline"] = _resource("AWS::SageMaker::Pipeline", properties)
    if what.group:
        named = {"ModelPackageGroupName": what.group, "Tags": properties["Tags"]}
        resources["Group"] = _resource("AWS::SageMaker::ModelPackageGroup", named)
    return dump(document)


def _resource(kind: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    given = {key: value for key, value in properties.items() if value not in ("", [])}
    return {"Type": kind, "Properties": given}


def terraform(what: Infrastructure) -> str:
    """Return a configuration for Terraform as JSON: a file whose name ends with ``.tf.json``."""
    bucket, key = what.place
    own = f"${{aws_iam_role.{PIPELINE_ROLE}.arn}}"
    pipeline = {
        "pipeline_name": what.definition.name,
        "pipeline_display_name": what.definition.name,
        "pipeline_description": literal(what.definition.description),
        "role_arn": own if what.with_roles else what.definition.role,
        "pipeline_definition_s3_location": {"bucket": bucket, "object_key": key},
        "parallelism_configuration": {
            "max_parallel_execution_steps": what.definition.max_parallel_steps
        },
        "tags": literals(what.definition.tags),
    }
    resources: dict[str, Any] = _terraform_roles(what) if what.with_roles else {}
    resources["aws_sagemaker_pipeline"] = {"Pipeline": pipeline}
    if what.group:
        named = {"model_package_group_name": what.group, "tags": pipeline["tags"]}
        resources["aws_sagemaker_model_package_group"] = {"Group": named}
    provider = {"aws": {"source": "hashicorp/aws", "version": ">= 5.0"}}
    boundary = {"type": "string", "default": None, "description": "ARN; roles get it if it is set"}
    document = {
        "terraform": {"required_providers": provider},
        **({"variable": {"permissions_boundary": boundary}} if what.with_roles else {}),
        "resource": resources,
    }
    return json.dumps(document, indent=2) + "\n"


def _terraform_roles(what: Infrastructure) -> dict[str, Any]:
    """Return the roles and policies of the CloudFormation template as Terraform's resources."""
    found: dict[str, Any] = {"aws_iam_role": {}, "aws_iam_role_policy": {}, "aws_iam_policy": {}}
    policies = {each.name: derive(what.subject, each.name) for each in roles(what.subject)}
    for logical, resource in role_resources(what.subject, policies).items():
        given = resource["Properties"]
        if resource["Type"] == "AWS::IAM::ManagedPolicy":
            found["aws_iam_policy"][logical] = {
                "name": given["ManagedPolicyName"],
                "description": given["Description"],
                "policy": literal(json.dumps(given["PolicyDocument"])),
                "tags": literals(what.definition.tags),
            }
            continue
        found["aws_iam_role"][logical] = {
            "name": given["RoleName"],
            "path": given.get("Path", "/"),
            "description": given["Description"],
            "tags": literals(what.definition.tags),
            "assume_role_policy": literal(json.dumps(given["AssumeRolePolicyDocument"])),
            **(
                {"permissions_boundary": "${var.permissions_boundary}"} if BOUNDARY in given else {}
            ),
        }
        for policy in given["Policies"]:
            found["aws_iam_role_policy"][logical] = {
                "name": policy["PolicyName"],
                "role": f"${{aws_iam_role.{logical}.name}}",
                "policy": literal(json.dumps(policy["PolicyDocument"])),
            }
    return found


def literals(tags: Mapping[str, str]) -> dict[str, str]:
    """Return tags with what Terraform would take for a template escaped."""
    return {literal(key): literal(value) for key, value in tags.items()}


def literal(text: str) -> str:
    """Return the text with what Terraform would take for a template escaped."""
    return text.replace("${", "$${").replace("%{", "%%{")
