"""A pipeline as the service keeps it: what upsert compares, records and applies, plan explains."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

from botocore.exceptions import ClientError

from trainyard.aws_clients import error_code
from trainyard.common.hashes import json_sha256

NOT_OURS = ("aws:", "sagemaker:")
"""Tags that AWS and SageMaker Projects put on pipelines; they are left alone."""


@dataclass(frozen=True)
class State:
    """All of a pipeline that an upsert sets: the whole request."""

    name: str
    definition: str
    """The definition JSON."""

    role: str = ""
    description: str = ""
    max_parallel_steps: int | None = None
    tags: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def document(self) -> dict[str, Any]:
        """The definition, parsed."""
        return json.loads(self.definition)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over what it means: neither white space nor the order of keys counts."""
        meaning = self.as_json() | {"definition": self.document}
        return json_sha256(meaning)

    def as_json(self) -> dict[str, Any]:
        """Plain JSON types, the definition as text."""
        return {
            "name": self.name,
            "definition": self.definition,
            "role": self.role,
            "description": self.description,
            "max_parallel_steps": self.max_parallel_steps,
            "tags": dict(sorted(self.tags.items())),
        }

    def request(self) -> dict[str, Any]:
        """UpdatePipeline's request; CreatePipeline's, but for the tags."""
        parallel = {"MaxParallelExecutionSteps": self.max_parallel_steps}
        return {
            "PipelineName": self.name,
            "PipelineDefinition": self.definition,
            "PipelineDescription": self.description,
            "RoleArn": self.role,
            **({"ParallelismConfiguration": parallel} if self.max_parallel_steps else {}),
        }


@dataclass(frozen=True, slots=True)
class Deployed:
    """A pipeline that is there."""

    arn: str
    state: State
    changed: datetime
    """When it was last changed."""

    by: str
    """Who changed it last, as far as the service tells."""


def describe(sagemaker: Any, name: str) -> Deployed | None:
    """The pipeline of that name with its tags; None when there is none.

    Raises:
        ClientError: AWS refused.
    """
    try:
        answer = sagemaker.describe_pipeline(PipelineName=name)
    except ClientError as error:
        if error_code(error) == "ResourceNotFound":
            return None
        raise
    parallel = answer.get("ParallelismConfiguration") or {}
    state = State(
        name=name,
        definition=answer["PipelineDefinition"],
        role=answer.get("RoleArn", ""),
        description=answer.get("PipelineDescription", ""),
        max_parallel_steps=parallel.get("MaxParallelExecutionSteps"),
        tags=_tags(sagemaker, answer["PipelineArn"]),
    )
    return Deployed(answer["PipelineArn"], state, answer["LastModifiedTime"], _who(answer))


def _tags(sagemaker: Any, arn: str) -> dict[str, str]:
    pages = sagemaker.get_paginator("list_tags").paginate(ResourceArn=arn)
    tags = {tag["Key"]: tag["Value"] for page in pages for tag in page["Tags"]}
    return {key: value for key, value in tags.items() if not key.startswith(NOT_OURS)}


def _who(answer: Mapping[str, Any]) -> str:
    """UserContext names a Studio user, or the IAM identity of any other caller."""
    user = answer.get("LastModifiedBy") or {}
    identity = (user.get("IamIdentity") or {}).get("Arn")
    return user.get("UserProfileName") or identity or "somebody whom the service does not name"
