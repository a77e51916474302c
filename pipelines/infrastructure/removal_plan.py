"""Find what a pipeline left in an account, and which of it registered models depend on.

A model package, or a model created from it, depends on each object that its description names, on
each object that the jobs of its execution name (the execution that registered it), and on that
execution: if a pipeline is deleted, SageMaker also deletes its executions. What serves a package is
kept as long as the package is registered. Captured requests are always kept, because they belong to
the account and not to a model.
"""

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from botocore import xform_name
from botocore.exceptions import ClientError

from pipelines.delivery.pipeline_objects import iter_objects
from pipelines.delivery.upsert_lock import LOCK
from pipelines.endpoint.endpoint_requests import CAPTURE_FOLDER, build_name_prefix
from pipelines.endpoint.rollout import BUSY, describe_endpoint
from trainyard.aws_clients import create_client, read_error_code, service_errors
from trainyard.common.errors import PlanError
from trainyard.language.definition_document import END_STATUSES
from trainyard.runs.execution import Execution

URI = re.compile(r"s3://[^\s\"'\\,;(){}\[\]<>]+")
"""An S3 URI in any text. If a match is too short, more objects are kept than needed, not fewer."""
_EXECUTION = re.compile(r"arn:[\w-]+:sagemaker:[\w-]+:\d{12}:pipeline/[\w.-]+/execution/\w+")
JOBS = ("ProcessingJob", "TrainingJob", "TransformJob", "HyperParameterTuningJob")
MISSING = ("ValidationException", "ResourceNotFound", "ResourceNotFoundException")


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointResources:
    """AWS resources that deployments to the recipe's endpoint left."""

    endpoint: str

    status: str | None
    """Status of the endpoint; None if it does not exist."""

    kept_by: str
    """Reason to keep the endpoint; empty if it is to be removed, or does not exist."""

    kept_names: tuple[str, ...]
    """Names of models and configurations of packages that are still registered."""

    configs: tuple[str, ...]
    models: tuple[str, ...]
    alarms: tuple[str, ...]
    """Names of alarms. Like ``configs`` and ``models``, of packages that are not registered."""

    @property
    def removable_names(self) -> tuple[str, ...]:
        """Return the names of configurations, models and alarms, each once; some share a name."""
        return (*dict.fromkeys((*self.configs, *self.models, *self.alarms)),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """Everything that upserts, executions and deployments of a pipeline left in an account."""

    removable_objects: dict[str, int]
    """Size in bytes of each object, by key, on which no model depends."""

    kept_objects: dict[str, int]
    """Size in bytes of each object, by key, on which a model depends."""

    capture_objects: dict[str, int]
    """Size in bytes of each object, by key, with captured requests; these objects are kept."""

    models: list[str]
    """ARNs of the model packages and models that depend on something of the pipeline."""

    executions: list[str]
    """ARNs of the pipeline's executions that registered one of these models."""

    packages: int
    """Number of packages in the pipeline's group."""

    exists: bool
    """Whether the pipeline exists."""

    endpoint_resources: EndpointResources | None
    """None if the recipe has no endpoint."""


def list_leftovers(
    name: str, group: str, region: str, bucket: str, prefix: str, endpoint: str | None = None
) -> Contents:
    """Return the objects and resources that pipeline ``name`` left in the account.

    Its objects are those below ``prefix``; ``endpoint`` serves the packages of its ``group``.

    Raises:
        PlanError: an execution of the pipeline, or a deployment to the endpoint, has not ended.
        ServiceError: something cannot be read, so it is not known what models depend on.
    """
    root = f"s3://{bucket}/{prefix}/"
    with service_errors(f"reading what pipeline {name} left"):
        sagemaker = create_client("sagemaker", region)
        execution_arns = _list_ended_runs(sagemaker, name)
        packages = list(iter_packages(sagemaker, group))
        endpoint_resources = _find_endpoint_resources(
            sagemaker, region, endpoint, group, {arn for arn, _ in packages}
        )
        removable_models = endpoint_resources.models if endpoint_resources else ()
        kept_models = [
            model
            for model in iter_models(sagemaker)
            if model[0].rpartition("/")[2] not in removable_models
        ]
        models, executions, named_uris = [], set(), set()
        for arn, description in [*packages, *kept_models]:
            uris, own_executions = find_dependencies(sagemaker, description, name, region, root)
            if uris:
                models.append(arn)
                named_uris |= uris
                executions |= own_executions
        # Not the lock, which the removal takes between the two calls of this function.
        objects = {f"{prefix}/{key}": size
                 for key, (size, _) in iter_objects(create_client("s3", region), bucket, prefix)
                 if key != f"definitions/{LOCK}"}  # fmt: skip
    capture_objects = {
        key: objects.pop(key) for key in [*objects] if key.startswith(f"{prefix}/{CAPTURE_FOLDER}/")
    }
    heads = tuple(uri.removeprefix(f"s3://{bucket}/") for uri in named_uris)
    return Contents(
        removable_objects={key: size for key, size in objects.items() if not key.startswith(heads)},
        kept_objects={key: size for key, size in objects.items() if key.startswith(heads)},
        capture_objects=capture_objects,
        models=models,
        executions=sorted(executions.intersection(execution_arns or ())),
        packages=sum(f"/{group}/" in arn or arn.startswith(f"{group}/") for arn, _ in packages),
        exists=execution_arns is not None,
        endpoint_resources=endpoint_resources,
    )


def _find_endpoint_resources(
    sagemaker: Any, region: str, endpoint: str | None, group: str, package_arns: Collection[str]
) -> EndpointResources | None:
    """Return the resources that deployments to the endpoint left; None without an endpoint. Raise
    PlanError if the endpoint is busy.
    """
    if endpoint is None:
        return None
    group = group.rpartition("/")[2]
    start = build_name_prefix(endpoint, group)
    versions = [arn.rpartition("/")[2] for arn in package_arns if f":model-package/{group}/" in arn]
    cloudwatch = create_client("cloudwatch", region)
    with_start, begin = {"NameContains": start}, {"AlarmNamePrefix": start}
    names = {
        "configs": _list_names(
            sagemaker, "list_endpoint_configs", "EndpointConfigName", **with_start
        ),
        "models": _list_names(sagemaker, "list_models", "ModelName", **with_start),
        "alarms": _list_names(cloudwatch, "describe_alarms", "AlarmName", **begin),
    }
    form = re.compile(rf"{re.escape(start)}(\d+)(-\w+)?")
    versions_by_kind = {
        kind: {name: match[1] for name in all_names if (match := form.fullmatch(name))}
        for kind, all_names in names.items()
    }
    description = describe_endpoint(sagemaker, endpoint)
    if description and description["EndpointStatus"] in BUSY:
        raise PlanError(
            f"endpoint {endpoint}: is {description['EndpointStatus']}: wait until it is InService "
            "or Failed"
        )
    config = description["EndpointConfigName"] if description else ""
    kept_by = ""
    if description and config not in versions_by_kind["configs"]:
        kept_by = f"it serves {config}, which no deployment of group {group} created"
    elif description and versions_by_kind["configs"][config] in versions:
        kept_by = f"it serves {group}/{versions_by_kind['configs'][config]}, which is registered"
    kept_names = {
        name
        for name_versions in versions_by_kind.values()
        for name, version in name_versions.items()
        if version in versions
    }
    return EndpointResources(
        endpoint=endpoint,
        status=description["EndpointStatus"] if description else None,
        kept_by=kept_by,
        kept_names=tuple(sorted(kept_names)),
        **{kind: tuple(sorted({*all_} - kept_names)) for kind, all_ in versions_by_kind.items()},
    )


def _list_names(client_: Any, operation: str, member: str, **request: str) -> Iterator[str]:
    """Yield the member ``member`` of all items that the operation lists."""
    for page in client_.get_paginator(operation).paginate(**request):
        for items in page.values():
            if isinstance(items, list):
                yield from (item[member] for item in items)


def find_dependencies(
    sagemaker: Any, description: str, name: str, region: str, root: str
) -> tuple[set[str], set[str]]:
    """Return what a described package or model depends on: (URIs below ``root``, ARNs of executions
    of pipeline ``name``).

    ``description``: its description as text, in which the ARN of its execution is looked up.
    """
    runs = set(_EXECUTION.findall(description))
    jobs = [job for run in sorted(runs) for job in _iter_job_descriptions(sagemaker, run, region)]
    uris = {uri for text in (description, *jobs) for uri in URI.findall(text)}
    uses = {uri for uri in uris if uri.startswith(root) and uri != root}
    own_executions = {run for run in runs if f":pipeline/{name}/" in run}
    return uses | {
        f"{root}runs/{run.rpartition('/')[2]}/" for run in own_executions
    }, own_executions


def list_executions(sagemaker: Any, name: str) -> list[dict[str, Any]] | None:
    """Return the summaries of the pipeline's executions; None if the pipeline does not exist."""
    try:
        pages = sagemaker.get_paginator("list_pipeline_executions").paginate(PipelineName=name)
        return [run for page in pages for run in page["PipelineExecutionSummaries"]]
    except ClientError as error:
        if read_error_code(error) in MISSING:
            return None
        raise


def _list_ended_runs(sagemaker: Any, name: str) -> list[str] | None:
    """Return the ARNs of the pipeline's executions; None if the pipeline does not exist.

    Raises:
        PlanError: an execution has not ended.
    """
    executions = list_executions(sagemaker, name)
    if executions is None:
        return None
    for run in executions:
        if run["PipelineExecutionStatus"] not in END_STATUSES:
            raise PlanError(
                f"pipeline {name}: execution {run['PipelineExecutionArn']} is "
                f"{run['PipelineExecutionStatus']}: wait until it has ended, or stop it (aws "
                "sagemaker stop-pipeline-execution)"
            )
    return [run["PipelineExecutionArn"] for run in executions]


def iter_packages(sagemaker: Any, group: str) -> Iterator[tuple[str, str]]:
    """Yield (ARN, description as JSON) of the packages of every group that can be listed, and of
    ``group``, which may be in another account.
    """
    pages = sagemaker.get_paginator("list_model_package_groups").paginate()
    groups = [item for page in pages for item in page["ModelPackageGroupSummaryList"]]
    names = [item["ModelPackageGroupName"] for item in groups]
    for group_name in dict.fromkeys([*names, *([group] if ":" in group else [])]):
        pages = sagemaker.get_paginator("list_model_packages").paginate(
            ModelPackageGroupName=group_name
        )
        for page in pages:
            for item in page["ModelPackageSummaryList"]:
                arn = item["ModelPackageArn"]
                description = sagemaker.describe_model_package(ModelPackageName=arn)
                yield arn, json.dumps(description, default=str)


def iter_models(sagemaker: Any) -> Iterator[tuple[str, str]]:
    """Yield (ARN, description as JSON) of every model in the account."""
    for page in sagemaker.get_paginator("list_models").paginate():
        for item in page["Models"]:
            description = sagemaker.describe_model(ModelName=item["ModelName"])
            yield item["ModelArn"], json.dumps(description, default=str)


def _iter_job_descriptions(sagemaker: Any, execution: str, region: str) -> Iterator[str]:
    """Yield the descriptions, as JSON, of the execution's jobs, and of the jobs that its cached
    steps used.
    """
    try:
        sagemaker.describe_pipeline_execution(PipelineExecutionArn=execution)
    except ClientError as error:
        if read_error_code(error) not in MISSING:
            raise
        # A deleted pipeline's executions are deleted, but their jobs are not: find them by the
        # execution's ID in their names.
        jobs = list(_find_jobs_by_name(sagemaker, execution.rpartition("/")[2]))
    else:
        jobs = [job for step in Execution(execution, region).list_steps() if (job := step.job)]
    for kind, name in jobs:
        describe = getattr(sagemaker, f"describe_{xform_name(kind)}")
        yield json.dumps(describe(**{f"{kind}Name": name}), default=str)


def _find_jobs_by_name(sagemaker: Any, part: str) -> Iterator[tuple[str, str]]:
    """Yield (kind, name) of the jobs whose names contain ``part``."""
    for kind in JOBS:
        pages = sagemaker.get_paginator(f"list_{xform_name(kind)}s").paginate(NameContains=part)
        for page in pages:
            yield from ((kind, item[f"{kind}Name"]) for item in page[f"{kind}Summaries"])
