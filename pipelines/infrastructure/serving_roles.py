"""Roles that a recipe's commands need: plan, CI, and, with an endpoint, deploy and monitor.

Deploy brings a package into service; monitor compares requests with a baseline. Neither may approve
a package. Deploy may pass the jobs' role to a model, and no other role.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipelines.compile.compilation import CompiledPipeline
from pipelines.endpoint.endpoint_requests import (
    CAPTURE_FOLDER,
    NAMESPACE,
    Release,
    build_alarm_requests,
    build_config_request,
    build_deployment_config,
    build_model_request,
)
from pipelines.recipe.config import Recipe
from pipelines.recipe.read_recipe import load_recipe
from pipelines.registry.ledger import PARAMETER
from trainyard.common.errors import DefinitionError
from trainyard.language.step_types import get_step_type
from trainyard.permissions.job_role import allow_keys, allow_listing, allow_storage
from trainyard.permissions.pipeline_role import CREATED_RESOURCES, SAGEMAKER, find_registered_groups
from trainyard.permissions.pipeline_subject import Collector, Needs, Subject, build_key_arn
from trainyard.permissions.role_template import build_managed_policy, register_role
from trainyard.permissions.statements import Gap, Statement, list_folder_patterns, split_uri
from trainyard.permissions.step_requests import COLLECTORS, iter_all_requests, list_job_roles


def _make_policy_builder(
    name: str, description: str
) -> Callable[[Subject, dict[str, Any]], dict[str, Any]]:
    """Return a function that builds the managed policy ``<pipeline>-<name>`` from a document."""
    return lambda subject, document: build_managed_policy(
        f"{subject.name}-{name}", document, description
    )


def _require_release(subject: Subject, section: str) -> Release:
    """Return the recipe's release; raise DefinitionError if the section is missing."""
    new: Release | None = subject.application
    if new is None or getattr(new.recipe, section) is None:
        raise DefinitionError(f"pipeline {subject.name}: needs a recipe with the section {section}")
    return new


@register_role(
    "deploy",
    logical="DeployPolicy",
    place=6,
    resource=_make_policy_builder("deploy", "Brings an Approved package into service"),
    exists=lambda subject: subject.application is not None,
)
def deploy_statements(subject: Subject) -> Iterator[Statement | Gap]:
    """Allow verifying a package of the group, and serving it at the recipe's endpoint.

    Raises:
        DefinitionError: the recipe does not deploy.
    """
    new = _require_release(subject, "deploy")
    compare = new.deploy.compare
    answers = list_root_patterns(subject, f"captured/{new.deploy.endpoint}/*")
    reads = (
        _list_result_keys(subject, new)
        | list_root_patterns(subject, "code/*")
        | list_input_patterns(subject)
    )
    reads |= answers if compare and compare.quality else set()
    yield from allow_registry_reads(subject, "DescribeModelPackage")
    yield from _allow_execution_reads(subject)
    yield from allow_storage("Verify", subject, reads, ("s3:GetObject",))
    yield from allow_listing(subject, reads)
    yield from allow_keys("ReadKeys", list_own_keys(subject), ("kms:Decrypt",))
    yield from _allow_input_decryption(subject)
    yield from _allow_deployment(subject, new)
    yield Statement(
        sid="PassJobRole", actions=("iam:PassRole",), resources=(new.role,), conditions=SAGEMAKER
    )
    # Developer guide, "Amazon SageMaker API Permissions": CreateEndpoint needs this for a
    # configuration with a key.
    grant = {"Bool": {"kms:GrantIsForAWSResource": ("true",)}}
    yield from allow_keys("VolumeKeys", list_own_keys(subject), ("kms:CreateGrant",), grant)
    yield Statement(
        sid="Alarms",
        actions=("cloudwatch:PutMetricAlarm",),
        resources=tuple(
            subject.build_arn("cloudwatch", f"alarm:{alarm['AlarmName']}")
            for alarm in build_alarm_requests(new)
        ),
    )
    metrics = ("*",) if compare else ()
    yield Statement(sid="Compare", actions=("cloudwatch:GetMetricStatistics",), resources=metrics)
    yield Statement(
        sid="RollBack",
        actions=("cloudwatch:PutMetricData",),
        resources=metrics,
        conditions={"StringEquals": {"cloudwatch:namespace": (NAMESPACE,)}},
    )


def _list_result_keys(subject: Subject, new: Release) -> set[tuple[str, str]]:
    """Return (bucket, key pattern) of the results that packages name, and of promoted copies."""
    return list_root_patterns(subject, "runs/*", *(("promoted/*",) if new.recipe.promotion else ()))


def _allow_input_decryption(subject: Subject) -> Iterator[Statement]:
    """Allow decrypting inputs that are encrypted with keys other than the pipeline's."""
    keys = {build_key_arn(subject, key) for key in subject.read_keys}
    yield from allow_keys("InputKeys", keys - list_own_keys(subject), ("kms:Decrypt",))


def _allow_deployment(subject: Subject, new: Release) -> Iterator[Statement]:
    """Allow creating a model and a configuration for each package, and one endpoint for them."""
    of_endpoint = ("sagemaker:CreateEndpoint", "sagemaker:UpdateEndpoint")
    for sid, resource, actions in (
        ("Models", f"model/{new.name}", ("sagemaker:CreateModel",)),
        (
            "Configs",
            f"endpoint-config/{new.name}",
            ("sagemaker:CreateEndpointConfig", "sagemaker:DescribeEndpointConfig", *of_endpoint),
        ),
        (
            "Endpoint",
            f"endpoint/{new.deploy.endpoint}",
            ("sagemaker:DescribeEndpoint", "sagemaker:ListTags", *of_endpoint),
        ),
    ):
        yield Statement(
            sid=sid,
            actions=("sagemaker:AddTags", *actions),
            resources=(subject.build_arn("sagemaker", resource),),
        )


def _allow_execution_reads(subject: Subject) -> Iterator[Statement]:
    """Allow reading what the executions did: unlike a package, this record cannot be edited."""
    yield Statement(
        sid="Executions",
        actions=(
            "sagemaker:DescribePipelineDefinitionForExecution",
            "sagemaker:ListPipelineExecutionSteps",
            "sagemaker:ListPipelineParametersForExecution",
        ),
        resources=(subject.build_arn("sagemaker", f"pipeline/{subject.name}/execution/*"),),
    )
    types = {step.type for step in subject.values.steps}
    jobs = {job.api: job for type_ in types if (job := get_step_type(type_).job)}
    for _, job in sorted(jobs.items()):
        yield Statement(
            sid=f"{job.api}s",
            actions=(f"sagemaker:Describe{job.api}",),
            resources=(subject.build_arn("sagemaker", f"{job.resource}/pipelines-*"),),
        )
    for sid, resource, actions in CREATED_RESOURCES["Tuning"] if "Tuning" in types else ():
        yield Statement(
            sid=sid,
            actions=tuple(
                f"sagemaker:{action}"
                for action in actions
                if action.startswith(("Describe", "List"))
            ),
            resources=(subject.build_arn("sagemaker", resource),),
        )


@register_role(
    "monitor",
    logical="MonitorPolicy",
    place=7,
    resource=_make_policy_builder("monitor", "Compares what the endpoint is asked with a baseline"),
    exists=lambda subject: bool(subject.application and subject.application.recipe.monitor),
)
def monitor_statements(subject: Subject) -> Iterator[Statement | Gap]:
    """Allow the requests that monitoring sends.

    It reads captured requests, baseline and truths, writes the results, and starts the pipeline if
    the recipe sets ``monitor.retrain``.

    Raises:
        DefinitionError: the recipe does not monitor.
    """
    new = _require_release(subject, "monitor")
    monitor, endpoint = new.recipe.monitor, new.deploy.endpoint
    assert monitor is not None
    reads = list_root_patterns(subject, f"captured/{endpoint}/*")
    for field, uri in (("baseline", monitor.baseline), ("truths", monitor.truths)):
        if uri:
            bucket, key = split_uri(uri, f"monitor.{field}")
            reads |= {(bucket, pattern) for pattern in list_folder_patterns(key)}
    if monitor.truths:
        reads |= _list_result_keys(subject, new)
    if monitor.retrain:
        yield from iter_read_statements(subject, reads)
        pipeline = subject.build_arn("sagemaker", f"pipeline/{subject.name}")
        start = ("sagemaker:StartPipelineExecution",)
        yield Statement(sid="Start", actions=start, resources=(pipeline,))
    else:
        yield from allow_storage("Read", subject, reads, ("s3:GetObject",))
        yield from allow_listing(subject, reads)
        yield from allow_keys("ReadKeys", list_own_keys(subject), ("kms:Decrypt",))
    if monitor.baseline or monitor.truths:
        yield from _allow_input_decryption(subject)
    if monitor.truths and not monitor.retrain:
        yield from allow_registry_reads(subject, "DescribeModelPackage")
        yield from allow_endpoint_lookup(subject)
    write_keys = list_root_patterns(subject, "monitoring/*") | (
        list_ledger_patterns(subject) if monitor.retrain else set()
    )
    yield from allow_storage("Write", subject, write_keys, ("s3:PutObject",))
    yield from allow_keys("WriteKeys", list_own_keys(subject), ("kms:GenerateDataKey",))
    topic = (monitor.topic,) if monitor.topic else ()
    yield Statement(sid="Tell", actions=("sns:Publish",), resources=topic)


# Roles for one recipe's pipeline only: plan, which reads; CI, which upserts and starts.
#
# Neither may do what the pipeline or its jobs do. CI may pass the pipeline its role, and no other
# role. A plan runs before an approval, so its role cannot change anything.

UPSERT_KEYS = ("code/*", "definitions/*")
"""Keys below the pipeline's prefix that an upsert writes: code, and records of what it deployed."""

LOCK = "definitions/lock"
"""Key of the lock object, which prevents concurrent upserts; deleting it releases the lock."""


@register_role(
    "plan",
    logical="PlanPolicy",
    place=3,
    resource=_make_policy_builder("plan", "Looks at the pipeline; before an approval"),
)
def plan_statements(subject: Subject) -> Iterator[Statement | Gap]:
    """Allow reading the pipeline, its executions, the champion's package, and what upserts wrote.

    Raises:
        DefinitionError: it is not known where an upsert writes.
    """
    yield from iter_read_statements(subject)


def iter_read_statements(
    subject: Subject, further: AbstractSet[tuple[str, str]] = frozenset()
) -> Iterator[Statement | Gap]:
    """Allow reading what a plan reads, and also the ``further`` objects (bucket, key pattern)."""
    pipeline = subject.build_arn("sagemaker", f"pipeline/{subject.name}")
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
    yield from allow_registry_reads(subject)
    yield from allow_endpoint_lookup(subject)
    upload_keys = (
        list_root_patterns(subject, *UPSERT_KEYS) | list_ledger_patterns(subject) | further
    )
    yield from allow_storage("LookAtUploads", subject, upload_keys, ("s3:GetObject",))
    # For the step cache, a plan checks that inputs outside of the pipeline's own prefix are as a
    # cached step read them, and that its results still exist.
    yield from allow_listing(
        subject, upload_keys | list_input_patterns(subject) | _collect_job_needs(subject).writes
    )
    yield from allow_keys("ReadKeys", list_own_keys(subject), ("kms:Decrypt",))


@register_role(
    "ci",
    logical="CiPolicy",
    place=4,
    resource=_make_policy_builder("ci", "Upserts and starts the pipeline; after it"),
)
def ci_statements(subject: Subject) -> Iterator[Statement | Gap]:
    """Allow upserting and starting this pipeline, and reading what a plan reads.

    Raises:
        DefinitionError: it is not known where an upsert writes.
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
        resources=(subject.build_arn("sagemaker", f"pipeline/{subject.name}"),),
    )
    yield Statement(
        sid="PassPipelineRole",
        actions=("iam:PassRole",),
        resources=(subject.role,),
        conditions=SAGEMAKER,
    )
    upload_keys = list_root_patterns(subject, *UPSERT_KEYS) | list_ledger_patterns(subject)
    yield from allow_storage("Upload", subject, upload_keys, ("s3:PutObject",))
    yield from allow_storage(
        "Unlock", subject, list_root_patterns(subject, LOCK), ("s3:DeleteObject",)
    )
    yield from allow_keys("UploadKeys", list_own_keys(subject), ("kms:GenerateDataKey",))


def allow_registry_reads(subject: Subject, *actions: str) -> Iterator[Statement | Gap]:
    """Allow reading the group's packages; without ``actions``, also listing them."""
    groups, unknown = find_registered_groups(subject)
    yield from unknown
    action_names = actions or ("DescribeModelPackage", "ListModelPackages")
    yield Statement(
        sid="ModelPackages",
        actions=tuple(f"sagemaker:{action}" for action in action_names),
        resources=tuple(group.packages for group in groups),
    )


def allow_endpoint_lookup(subject: Subject) -> Iterator[Statement]:
    """Allow looking up which package the recipe's endpoint serves, because it is the champion."""
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
            resources=(subject.build_arn("sagemaker", name),),
        )


def list_input_patterns(subject: Subject) -> set[tuple[str, str]]:
    """Return (bucket, key pattern) of the jobs' inputs outside of the pipeline's own prefix."""
    own_prefix = f"{subject.root}/"
    return {
        (b, key)
        for b, key in _collect_job_needs(subject).reads
        if not f"s3://{b}/{key}".startswith(own_prefix)
    }


def _collect_job_needs(subject: Subject) -> Needs:
    """Return what the pipeline's jobs need, without what deployments need."""
    job_needs = Needs()
    for step, request in iter_all_requests(replace(subject, extra_steps=())):
        COLLECTORS[step.type](Collector(subject, step, job_needs), request.arguments)
    return job_needs


def list_root_patterns(subject: Subject, *names: str) -> set[tuple[str, str]]:
    """Return (bucket, key pattern) of objects below the pipeline's prefix; raise DefinitionError if
    the prefix is not known.
    """
    if subject.root is None:
        raise DefinitionError(
            f"pipeline {subject.name}: give --root s3://bucket/prefix, to which an upsert writes"
        )
    bucket, prefix = split_uri(subject.root, "--root")
    return {(bucket, f"{prefix}/{name}") for name in names}


def list_ledger_patterns(subject: Subject) -> set[tuple[str, str]]:
    """Return (bucket, key pattern) of the ledger that counts comparisons with the champion on a
    test split (looks); all pipelines below the prefix share it.

    Empty if the pipeline does not count them.
    """
    if all(entry["Name"] != PARAMETER for entry in subject.document.get("Parameters", ())):
        return set()
    return {
        (bucket, f"{key.rpartition('/')[0]}/looks/*")
        for bucket, key in list_root_patterns(subject, "")
        for key in [key.rstrip("/")]
    }


def list_own_keys(subject: Subject) -> set[str]:
    """Return the ARN of the pipeline's KMS key, or an empty set."""
    return {build_key_arn(subject, subject.kms_key)} if subject.kms_key else set()


# The subject of a recipe's policies: its pipeline, and the endpoint that serves its model.


def build_recipe_subject(
    path: Path, overrides: Sequence[str], environment: str | None = None
) -> Subject:
    """Return the subject of a recipe's policies.

    This compiles the recipe, and so imports the SDK, which takes a while.
    """
    from pipelines.definition import from_recipe as compile_recipe

    recipe = load_recipe(path, overrides, environment)
    return build_subject(compile_recipe(path, overrides, environment), recipe)


def build_subject(definition: CompiledPipeline, recipe: Recipe) -> Subject:
    """Return the subject of the policies of a compiled pipeline, with its recipe's endpoint."""
    root = f"s3://{definition.assets[0].bucket}/{recipe.aws.prefix}/{definition.name}"
    pipeline_subject = Subject(
        name=definition.name,
        region=definition.region,
        role=definition.role,
        document=json.loads(definition.body),
        root=root,
        kms_key=definition.kms_key,
        read_keys=recipe.aws.input_keys,
        tags=definition.tags,
    )
    if recipe.deploy is None:
        return pipeline_subject
    group = recipe.register_.model_package_group.rpartition("/")[2]
    package = pipeline_subject.build_arn("sagemaker", f"model-package/{group}/*")
    new = Release(recipe, package, list_job_roles(pipeline_subject)[0], f"{root}/{CAPTURE_FOLDER}")
    return replace(
        pipeline_subject,
        extra_steps=tuple(_list_deployment_requests(pipeline_subject, new)),
        application=new,
    )


def _list_deployment_requests(subject: Subject, new: Release) -> Iterator[dict[str, Any]]:
    """Yield the requests of a deployment whose work is done with the jobs' role, in the form of
    steps.
    """
    steps = [step for step in subject.values.steps if step.type == "RegisterModel"]
    containers = [c for s in steps for c in s.arguments["InferenceSpecification"]["Containers"]]
    if new.recipe.promotion:
        copies = {"S3DataSource": {"S3Uri": f"{subject.root}/promoted/"}}
        containers += [
            container | {"ModelDataUrl": None, "ModelDataSource": copies}
            for container in containers
        ]
    for container in containers:
        model_request = build_model_request(new) | {"PrimaryContainer": container}
        yield {"Name": "deploy", "Type": "Model", "Arguments": model_request}
    shift = build_deployment_config(
        new.deploy, [alarm["AlarmName"] for alarm in build_alarm_requests(new)]
    )
    model_request = build_config_request(new) | {
        "ExecutionRoleArn": new.role,
        "DeploymentConfig": shift,
    }
    yield {"Name": "deploy", "Type": "EndpointConfig", "Arguments": model_request}
