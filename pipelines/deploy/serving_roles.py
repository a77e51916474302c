"""Roles of a recipe with an endpoint: deploy, which brings a package into service; monitor.

Neither may approve a package. Deploy may pass the jobs' role to a model, and only that one.
"""

from collections.abc import Iterator
from typing import Any

from pipelines.deploy.pipeline_roles import (
    below_root,
    endpoint_statements,
    input_data,
    ledger_keys,
    looking,
    own_keys,
    registry,
)
from pipelines.serving.endpoint_requests import NAMESPACE, Release, alarms
from trainyard.common.errors import DefinitionError
from trainyard.language.step_types import step_type
from trainyard.permissions.job_role import key_statements, lists, storage
from trainyard.permissions.named_resources import key_arn
from trainyard.permissions.pipeline_role import CREATED_RESOURCES, SAGEMAKER
from trainyard.permissions.pipeline_subject import Subject
from trainyard.permissions.role_table import role
from trainyard.permissions.role_template import managed_policy
from trainyard.permissions.statements import Gap, Statement, folder_patterns, split_uri


def _deploy_policy(subject: Subject, policy_document: dict[str, Any]) -> dict[str, Any]:
    description = "Brings an Approved package into service"
    return managed_policy(f"{subject.name}-deploy", policy_document, description)


def _endpoint_of(subject: Subject, section: str) -> Release:
    new: Release | None = subject.application
    if new is None or getattr(new.recipe, section) is None:
        raise DefinitionError(f"pipeline {subject.name}: needs a recipe with the section {section}")
    return new


@role(
    "deploy",
    logical="DeployPolicy",
    place=6,
    resource=_deploy_policy,
    exists=lambda subject: subject.application is not None,
)
def deploy_statements(subject: Subject) -> Iterator[Statement | Gap]:
    """Allow to verify a package of the group, and to serve it at the recipe's endpoint.

    Raises:
        DefinitionError: it is not of a recipe that deploys.
    """
    new = _endpoint_of(subject, "deploy")
    compare = new.deploy.compare
    answers = below_root(subject, f"captured/{new.deploy.endpoint}/*")
    reads = _list_result_keys(subject, new) | below_root(subject, "code/*") | input_data(subject)
    reads |= answers if compare and compare.quality else set()
    yield from registry(subject, "DescribeModelPackage")
    yield from _execution_statements(subject)
    yield from storage("Verify", subject, reads, ("s3:GetObject",))
    yield from lists(subject, reads)
    yield from key_statements("ReadKeys", own_keys(subject), ("kms:Decrypt",))
    yield from _input_keys(subject)
    yield from _deployment_statements(subject, new)
    yield Statement(
        sid="PassJobRole",
        actions=("iam:PassRole",),
        resources=(new.role,),
        conditions=SAGEMAKER,
    )
    # Developer guide, "Amazon SageMaker API Permissions": for CreateEndpoint of such a config.
    grant = {"Bool": {"kms:GrantIsForAWSResource": ("true",)}}
    yield from key_statements("VolumeKeys", own_keys(subject), ("kms:CreateGrant",), grant)
    yield Statement(
        sid="Alarms",
        actions=("cloudwatch:PutMetricAlarm",),
        resources=tuple(
            subject.arn("cloudwatch", f"alarm:{alarm['AlarmName']}") for alarm in alarms(new)
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
    """Return bucket and key of the results that a package names, or of a promotion's copies."""
    return below_root(subject, "runs/*", *(("promoted/*",) if new.recipe.promotion else ()))


def _input_keys(subject: Subject) -> Iterator[Statement]:
    """Allow to decrypt what the pipeline did not write."""
    keys = {key_arn(subject, key) for key in subject.read_keys}
    yield from key_statements("InputKeys", keys - own_keys(subject), ("kms:Decrypt",))


def _deployment_statements(subject: Subject, new: Release) -> Iterator[Statement]:
    """Allow to make a model and a configuration of each package, and one endpoint of them."""
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
            resources=(subject.arn("sagemaker", resource),),
        )


def _execution_statements(subject: Subject) -> Iterator[Statement]:
    """Allow to read what the executions did, which no package can be edited to hide."""
    yield Statement(
        sid="Executions",
        actions=(
            "sagemaker:DescribePipelineDefinitionForExecution",
            "sagemaker:ListPipelineExecutionSteps",
            "sagemaker:ListPipelineParametersForExecution",
        ),
        resources=(subject.arn("sagemaker", f"pipeline/{subject.name}/execution/*"),),
    )
    types = {step.type for step in subject.values.steps}
    jobs = {job.api: job for type_ in types if (job := step_type(type_).job)}
    for _, job in sorted(jobs.items()):
        yield Statement(
            sid=f"{job.api}s",
            actions=(f"sagemaker:Describe{job.api}",),
            resources=(subject.arn("sagemaker", f"{job.resource}/pipelines-*"),),
        )
    for sid, resource, actions in CREATED_RESOURCES["Tuning"] if "Tuning" in types else ():
        yield Statement(
            sid=sid,
            actions=tuple(
                f"sagemaker:{action}"
                for action in actions
                if action.startswith(("Describe", "List"))
            ),
            resources=(subject.arn("sagemaker", resource),),
        )


def _monitor_policy(subject: Subject, policy_document: dict[str, Any]) -> dict[str, Any]:
    description = "Compares what the endpoint is asked with a baseline"
    return managed_policy(f"{subject.name}-monitor", policy_document, description)


@role(
    "monitor",
    logical="MonitorPolicy",
    place=7,
    resource=_monitor_policy,
    exists=lambda subject: bool(subject.application and subject.application.recipe.monitor),
)
def monitor_statements(subject: Subject) -> Iterator[Statement | Gap]:
    """Allow to read what was captured, baseline and truths, to write what was found, and to start
    the pipeline, if its recipe lets a monitor do so.

    Raises:
        DefinitionError: it is not of a recipe that monitors.
    """
    new = _endpoint_of(subject, "monitor")
    monitor, endpoint = new.recipe.monitor, new.deploy.endpoint
    assert monitor is not None
    reads = below_root(subject, f"captured/{endpoint}/*")
    for field, uri in (("baseline", monitor.baseline), ("truths", monitor.truths)):
        if uri:
            bucket, key = split_uri(uri, f"monitor.{field}")
            reads |= {(bucket, pattern) for pattern in folder_patterns(key)}
    if monitor.truths:
        reads |= _list_result_keys(subject, new)
    if monitor.retrain:
        yield from looking(subject, reads)
        pipeline = subject.arn("sagemaker", f"pipeline/{subject.name}")
        start = ("sagemaker:StartPipelineExecution",)
        yield Statement(sid="Start", actions=start, resources=(pipeline,))
    else:
        yield from storage("Read", subject, reads, ("s3:GetObject",))
        yield from lists(subject, reads)
        yield from key_statements("ReadKeys", own_keys(subject), ("kms:Decrypt",))
    if monitor.baseline or monitor.truths:
        yield from _input_keys(subject)
    if monitor.truths and not monitor.retrain:
        yield from registry(subject, "DescribeModelPackage")
        yield from endpoint_statements(subject)
    write_keys = below_root(subject, "monitoring/*") | (
        ledger_keys(subject) if monitor.retrain else set()
    )
    yield from storage("Write", subject, write_keys, ("s3:PutObject",))
    yield from key_statements("WriteKeys", own_keys(subject), ("kms:GenerateDataKey",))
    topic = (monitor.topic,) if monitor.topic else ()
    yield Statement(sid="Tell", actions=("sns:Publish",), resources=topic)
