"""The roles around the pipeline: CI, which plans, upserts and starts it, and EventBridge.

Neither may do what the pipeline or its jobs do; CI may hand the pipeline its role, and that one
role only.
"""

from collections.abc import Iterator

from errors import DefinitionError
from pipelines.permissions.jobs import key_arn, key_statements, lists, storage
from pipelines.permissions.pipeline import SAGEMAKER, registered_groups
from pipelines.permissions.statements import Statement
from pipelines.permissions.subject import Subject
from pipelines.permissions.values import split_uri

WRITTEN = ("code/*", "definitions/*")
"""What an upsert writes under the pipeline's root: code, and records of what it deployed."""

LOCK = "definitions/lock"
"""What keeps two upserts apart; given back by deleting it."""


def ci_statements(subject: Subject) -> Iterator[Statement]:
    """Plan, upsert and start this pipeline; read its executions and its model packages.

    Raises:
        DefinitionError: nobody said where an upsert writes.
    """
    if subject.root is None:
        raise DefinitionError(
            f"pipeline {subject.name}: where does an upsert write? give --root s3://bucket/prefix"
        )
    pipeline = subject.arn("sagemaker", f"pipeline/{subject.name}")
    yield Statement(
        sid="Pipeline",
        actions=tuple(
            f"sagemaker:{action}"
            for action in (
                "AddTags",
                "CreatePipeline",
                "DeleteTags",
                "DescribePipeline",
                "ListPipelineExecutions",
                "ListTags",
                "StartPipelineExecution",
                "UpdatePipeline",
            )
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
    yield Statement(
        sid="PassPipelineRole",
        actions=("iam:PassRole",),
        resources=(subject.role,),
        conditions=SAGEMAKER,
    )
    yield from _uploads(subject, subject.root)


def _registry(subject: Subject) -> Iterator[Statement]:
    """The champion's package, with which a plan and a start compare."""
    groups = sorted(registered_groups(subject))
    yield Statement(
        sid="ModelPackages",
        actions=("sagemaker:DescribeModelPackage", "sagemaker:ListModelPackages"),
        resources=tuple(subject.arn("sagemaker", f"model-package/{g}/*") for g in groups),
    )


def _uploads(subject: Subject, root: str) -> Iterator[Statement]:
    bucket, prefix = split_uri(root, "--root")
    under = {(bucket, f"{prefix}/{name}") for name in WRITTEN}
    yield from storage("Uploads", subject, under, ("s3:GetObject", "s3:PutObject"))
    lock = {(bucket, f"{prefix}/{LOCK}")}
    yield from storage("Unlock", subject, lock, ("s3:DeleteObject",))
    yield from lists(subject, under)
    keys = {key_arn(subject, subject.kms_key)} if subject.kms_key else set()
    yield from key_statements("UploadKeys", keys, ("kms:Decrypt", "kms:GenerateDataKey"))


def events_statements(subject: Subject) -> Iterator[Statement]:
    """Start the pipeline on a schedule.

    Messages about a run's end need no role: EventBridge publishes to SNS by the topic's own policy,
    and its user guide ("Using resource-based policies") warns against a role there.
    """
    yield Statement(
        sid="StartOnSchedule",
        actions=("sagemaker:StartPipelineExecution",),
        resources=(subject.arn("sagemaker", f"pipeline/{subject.name}"),),
    )
