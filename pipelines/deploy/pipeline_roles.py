"""Roles for one recipe's pipeline only: plan, which reads; CI, which upserts and starts.

Neither may do what the pipeline or its jobs do; CI may pass the pipeline its role, and only that
one. A plan runs before an approval, so its role can change nothing.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pipelines.compile.compilation import CompiledPipeline
from pipelines.recipe.aws_section import Aws
from pipelines.recipe.read_recipe import load
from pipelines.registry.ledger import PARAMETER
from trainyard.common.errors import DefinitionError
from trainyard.permissions.job_role import key_statements, lists, storage
from trainyard.permissions.named_resources import Collector, Needs, key_arn
from trainyard.permissions.pipeline_role import SAGEMAKER, registered_groups
from trainyard.permissions.pipeline_subject import Subject
from trainyard.permissions.role_table import role
from trainyard.permissions.role_template import managed_policy
from trainyard.permissions.statements import Gap, Statement, split_uri
from trainyard.permissions.step_requests import COVERED, all_requests

WRITTEN = ("code/*", "definitions/*")
"""Keys that an upsert writes under the pipeline's root: code, and records of what it deployed."""

LOCK = "definitions/lock"
"""Key of the lock object that keeps two upserts apart; deleting it releases the lock."""


def from_recipe(path: Path, overrides: Sequence[str], environment: str | None = None) -> Subject:
    """Return the subject of a recipe's roles; compiles the recipe, so it imports the SDK, which
    takes a while.
    """
    from pipelines.definition import from_recipe as compile_recipe

    aws = load(path, overrides, environment).aws
    return subject(compile_recipe(path, overrides, environment), aws)


def subject(definition: CompiledPipeline, aws: Aws) -> Subject:
    """Return the subject of a compiled pipeline's roles; ``aws`` is the section of its recipe."""
    return Subject(
        name=definition.name,
        region=definition.region,
        role=definition.role,
        document=json.loads(definition.body),
        root=f"s3://{definition.assets[0].bucket}/{aws.prefix}/{definition.name}",
        kms_key=definition.kms_key,
        read_keys=aws.input_keys,
        tags=definition.tags,
    )


def _plan_policy(subject: Subject, derived: dict[str, Any]) -> dict[str, Any]:
    """Return the policy for the roles of infra/ci.yaml or infra/github.yaml."""
    said = "Looks at the pipeline; before an approval"
    return managed_policy(f"{subject.name}-plan", derived, said)


@role("plan", logical="PlanPolicy", place=3, resource=_plan_policy)
def plan_statements(subject: Subject) -> Iterator[Statement | Gap]:
    """Allow to look: at the pipeline, its executions, the champion's package, and what upserts
    wrote.

    Raises:
        DefinitionError: it is not given where an upsert writes.
    """
    pipeline = subject.arn("sagemaker", f"pipeline/{subject.name}")
    yield Statement(
        sid="LookAtPipeline",
        actions=(
            "sagemaker:DescribePipeline",
            "sagemaker:ListPipelineExecutions",
            "sagemaker:ListTags",
        ),
        resources=(pipeline,),
    )
    yield Statement(
        sid="Executions",
        actions=(
            "sagemaker:DescribePipelineDefinitionForExecution",
            "sagemaker:DescribePipelineExecution",
            "sagemaker:ListPipelineExecutionSteps",
            "sagemaker:ListPipelineParametersForExecution",
        ),
        resources=(f"{pipeline}/execution/*",),
    )
    yield from _registry(subject)
    under = _under(subject, *WRITTEN) | _looks(subject)
    yield from storage("LookAtUploads", subject, under, ("s3:GetObject",))
    yield from lists(subject, under | _cached(subject))
    yield from key_statements("ReadKeys", _keys(subject), ("kms:Decrypt",))


def _ci_policy(subject: Subject, derived: dict[str, Any]) -> dict[str, Any]:
    said = "Upserts and starts the pipeline; after it"
    return managed_policy(f"{subject.name}-ci", derived, said)


@role("ci", logical="CiPolicy", place=4, resource=_ci_policy)
def ci_statements(subject: Subject) -> Iterator[Statement | Gap]:
    """Allow to upsert and start this pipeline, and to look, as a plan does.

    Raises:
        DefinitionError: it is not given where an upsert writes.
    """
    yield from plan_statements(subject)
    yield Statement(
        sid="ChangePipeline",
        actions=(
            "sagemaker:AddTags",
            "sagemaker:CreatePipeline",
            "sagemaker:DeleteTags",
            "sagemaker:StartPipelineExecution",
            "sagemaker:UpdatePipeline",
        ),
        resources=(subject.arn("sagemaker", f"pipeline/{subject.name}"),),
    )
    yield Statement(
        sid="PassPipelineRole",
        actions=("iam:PassRole",),
        resources=(subject.role,),
        conditions=SAGEMAKER,
    )
    written = _under(subject, *WRITTEN) | _looks(subject)
    yield from storage("Upload", subject, written, ("s3:PutObject",))
    yield from storage("Unlock", subject, _under(subject, LOCK), ("s3:DeleteObject",))
    yield from key_statements("UploadKeys", _keys(subject), ("kms:GenerateDataKey",))


def _registry(subject: Subject) -> Iterator[Statement | Gap]:
    """Allow to read the champion's package, with which a plan and a start compare."""
    groups, unknown = registered_groups(subject)
    yield from unknown
    yield Statement(
        sid="ModelPackages",
        actions=("sagemaker:DescribeModelPackage", "sagemaker:ListModelPackages"),
        resources=tuple(group.packages for group in groups),
    )


def _cached(subject: Subject) -> set[tuple[str, str]]:
    """Return bucket and key pattern of what decides on the step cache: are the jobs' inputs outside
    of the pipeline's own prefix as a cached step read them, and are its results still there?
    """
    found = Needs()
    for step, request in all_requests(subject):
        COVERED[step.type](Collector(subject, step, found), request.arguments)
    own = f"{subject.root}/"
    data = {(b, key) for b, key in found.reads if not f"s3://{b}/{key}".startswith(own)}
    return data | found.writes


def _under(subject: Subject, *names: str) -> set[tuple[str, str]]:
    """Return bucket and key of what an upsert writes."""
    if subject.root is None:
        raise DefinitionError(
            f"pipeline {subject.name}: give --root s3://bucket/prefix, under which an upsert writes"
        )
    bucket, prefix = split_uri(subject.root, "--root")
    return {(bucket, f"{prefix}/{name}") for name in names}


def _looks(subject: Subject) -> set[tuple[str, str]]:
    """Return the keys of the ledger of looks at a test split, which all pipelines below the prefix
    share.
    """
    if all(entry["Name"] != PARAMETER for entry in subject.document.get("Parameters", ())):
        return set()
    return {(bucket, f"{key.rpartition('/')[0]}/looks/*") for bucket, key in _under(subject, "")
            for key in [key.rstrip("/")]}  # fmt: skip


def _keys(subject: Subject) -> set[str]:
    return {key_arn(subject, subject.kms_key)} if subject.kms_key else set()
