"""The state of a pipeline in the service, which an upsert compares, records and sets, and which a
plan explains.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

from botocore.exceptions import ClientError

from trainyard.aws_clients import read_error_code
from trainyard.common.hashes import hash_json

NOT_OURS = ("aws:", "sagemaker:")
"""Prefixes of tags that AWS and SageMaker Projects set on pipelines. They are ignored, and never
changed."""


@dataclass(frozen=True)
class State:
    """Everything that an upsert sets in a pipeline."""

    name: str
    definition: str
    """Definition as JSON text."""

    role: str = ""
    description: str = ""
    max_parallel_steps: int | None = None
    tags: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def document(self) -> dict[str, Any]:
        """Definition, parsed."""
        return json.loads(self.definition)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the state; white space and order of keys in the definition do not matter."""
        meaning = self.as_json() | {"definition": self.document}
        return hash_json(meaning)

    def as_json(self) -> dict[str, Any]:
        """Return the state as JSON types; the definition is a JSON text in it."""
        return {
            "name": self.name,
            "definition": self.definition,
            "role": self.role,
            "description": self.description,
            "max_parallel_steps": self.max_parallel_steps,
            "tags": dict(sorted(self.tags.items())),
        }

    def build_request(self) -> dict[str, Any]:
        """Return the request for UpdatePipeline; with tags, it is also valid for CreatePipeline."""
        parallel = {"MaxParallelExecutionSteps": self.max_parallel_steps}
        return {
            "PipelineName": self.name,
            "PipelineDefinition": self.definition,
            "PipelineDescription": self.description,
            "RoleArn": self.role,
            **({"ParallelismConfiguration": parallel} if self.max_parallel_steps else {}),
        }


@dataclass(frozen=True, slots=True)
class DeployedPipeline:
    """A pipeline that exists in the service."""

    arn: str
    state: State
    changed_at: datetime
    """Time of the last change."""

    by: str
    """Author of the last change, or words that say that the service does not name one."""


def describe_deployed_pipeline(sagemaker: Any, name: str) -> DeployedPipeline | None:
    """Return the deployed pipeline with that name and its tags; None if it does not exist.

    Raises:
        ClientError: AWS refused.
    """
    try:
        answer = sagemaker.describe_pipeline(PipelineName=name)
    except ClientError as error:
        if read_error_code(error) == "ResourceNotFound":
            return None
        raise
    parallel = answer.get("ParallelismConfiguration") or {}
    tag_pages = sagemaker.get_paginator("list_tags").paginate(ResourceArn=answer["PipelineArn"])
    tags = {tag["Key"]: tag["Value"] for page in tag_pages for tag in page["Tags"]}
    state = State(
        name=name,
        definition=answer["PipelineDefinition"],
        role=answer.get("RoleArn", ""),
        description=answer.get("PipelineDescription", ""),
        max_parallel_steps=parallel.get("MaxParallelExecutionSteps"),
        tags={key: value for key, value in tags.items() if not key.startswith(NOT_OURS)},
    )
    # LastModifiedBy (UserContext) names a Studio user, or else the IAM identity of the caller.
    user = answer.get("LastModifiedBy") or {}
    identity = (user.get("IamIdentity") or {}).get("Arn")
    author = user.get("UserProfileName") or identity or "an unknown author"
    return DeployedPipeline(answer["PipelineArn"], state, answer["LastModifiedTime"], author)
