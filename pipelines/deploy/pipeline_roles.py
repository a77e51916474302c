"""Roles for one recipe's pipeline only: plan, which reads; CI, which upserts and starts.

Neither may do what the pipeline or its jobs do; CI may pass the pipeline its role, and only that
one. A plan runs before an approval, so its role can change nothing.
"""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

from pipelines.registry.ledger import PARAMETER
from trainyard.common.errors import DefinitionError
from trainyard.permissions.job_role import key_statements, lists, storage
from trainyard.permissions.named_resources import Collector, Needs, key_arn
from trainyard.permissions.pipeline_role import SAGEMAKER, registered_groups
from trainyard.permissions.pipeline_subject import Subject
from trainyard.permissions.role_table import role
from trainyard.permissions.role_template import managed_policy
from trainyard.permissions.statements import Gap, Statement, split_uri
from trainyard.permissions.step_requests import COLLECTORS, all_requests

UPSERT_KEYS = ("code/*", "definitions/*")
"""Keys that an upsert writes under the pipeline's root: code, and records of what it deployed."""

LOCK = "definitions/lock"
"""Key of the lock object that keeps two upserts apart; deleting it releases the lock."""


def _plan_policy(subject: Subject, policy_document: dict[str, Any]) -> dict[str, Any]:
    """Return the policy for the roles of infra/ci.yaml or infra/github.yaml."""
    description = "Looks at the pipeline; before an approval"
    return managed_policy(f"{subject.name}-plan", policy_document, description)


@role("plan", logical="PlanPolicy", place=3, resource=_plan_policy)
def plan_statements(subject: Subject) -> Iterator[Statement | Gap]:
    """Allow to look: at the pipeline, its executions, the champion's package, and what upserts
    wrote.

    Raises:
        DefinitionError: it is not given where an upsert writes.
    """
    yield from looking(subject)


def looking(
    subject: Subject, further: AbstractSet[tuple[str, str]] = frozenset()
) -> Iterator[Statement | Gap]:
    """Allow to look as a plan does, and to read ``further`` objects, as bucket and key."""
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
    yield from registry(subject)
    yield from endpoint_statements(subject)
    upload_keys = below_root(subject, *UPSERT_KEYS) | ledger_keys(subject) | further
    yield from storage("LookAtUploads", subject, upload_keys, ("s3:GetObject",))
    yield from lists(subject, upload_keys | _list_cache_keys(subject))
    yield from key_statements("ReadKeys", own_keys(subject), ("kms:Decrypt",))


def _ci_policy(subject: Subject, policy_document: dict[str, Any]) -> dict[str, Any]:
    description = "Upserts and starts the pipeline; after it"
    return managed_policy(f"{subject.name}-ci", policy_document, description)


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
    upload_keys = below_root(subject, *UPSERT_KEYS) | ledger_keys(subject)
    yield from storage("Upload", subject, upload_keys, ("s3:PutObject",))
    yield from storage("Unlock", subject, below_root(subject, LOCK), ("s3:DeleteObject",))
    yield from key_statements("UploadKeys", own_keys(subject), ("kms:GenerateDataKey",))


def registry(subject: Subject, *actions: str) -> Iterator[Statement | Gap]:
    """Allow to read the group's packages; without ``actions``, to look for the champion, too."""
    groups, unknown = registered_groups(subject)
    yield from unknown
    action_names = actions or ("DescribeModelPackage", "ListModelPackages")
    yield Statement(
        sid="ModelPackages",
        actions=tuple(f"sagemaker:{action}" for action in action_names),
        resources=tuple(group.packages for group in groups),
    )


def endpoint_statements(subject: Subject) -> Iterator[Statement]:
    """Allow to ask which package the recipe's endpoint serves: it is the champion."""
    if subject.application is None:
        return
    for kind, name in (
        ("Endpoint", f"endpoint/{subject.application.deploy.endpoint}"),
        ("EndpointConfig", f"endpoint-config/{subject.application.name}"),
        ("Model", f"model/{subject.application.name}"),
    ):
        yield Statement(
            sid=f"Served{kind}",
            actions=(f"sagemaker:Describe{kind}",),
            resources=(subject.arn("sagemaker", name),),
        )


def _list_cache_keys(subject: Subject) -> set[tuple[str, str]]:
    """Return bucket and key pattern of what decides on the step cache: are the jobs' inputs outside
    of the pipeline's own prefix as a cached step read them, and are its results still there?
    """
    return input_data(subject) | _jobs(subject).writes


def input_data(subject: Subject) -> set[tuple[str, str]]:
    """Return bucket and key pattern of the jobs' inputs outside of the pipeline's own prefix."""
    own_prefix = f"{subject.root}/"
    return {
        (b, key) for b, key in _jobs(subject).reads if not f"s3://{b}/{key}".startswith(own_prefix)
    }


def _jobs(subject: Subject) -> Needs:
    """Return what the pipeline's jobs need; of what is beside it, nothing."""
    job_needs = Needs()
    for step, request in all_requests(replace(subject, extra_steps=())):
        COLLECTORS[step.type](Collector(subject, step, job_needs), request.arguments)
    return job_needs


def below_root(subject: Subject, *names: str) -> set[tuple[str, str]]:
    """Return bucket and key of what lies below the pipeline's prefix."""
    if subject.root is None:
        raise DefinitionError(
            f"pipeline {subject.name}: give --root s3://bucket/prefix, under which an upsert writes"
        )
    bucket, prefix = split_uri(subject.root, "--root")
    return {(bucket, f"{prefix}/{name}") for name in names}


def ledger_keys(subject: Subject) -> set[tuple[str, str]]:
    """Return the keys of the ledger of looks at a test split, which all pipelines below the prefix
    share.
    """
    if all(entry["Name"] != PARAMETER for entry in subject.document.get("Parameters", ())):
        return set()
    return {(bucket, f"{key.rpartition('/')[0]}/looks/*") for bucket, key in below_root(subject, "")
            for key in [key.rstrip("/")]}  # fmt: skip


def own_keys(subject: Subject) -> set[str]:
    return {key_arn(subject, subject.kms_key)} if subject.kms_key else set()
