"""Find what a pipeline left in an account, and what of it a registered model rests on.

A model package, or a model created from it, rests on each object that its description names, that
the jobs of the execution which registered it name, and on that execution: SageMaker deletes the
executions of a pipeline with the pipeline. What serves a package stays as long as the package does,
and captured requests are nobody's but the account's.
"""

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from botocore import xform_name
from botocore.exceptions import ClientError

from pipelines.deploy.pipeline_objects import listing
from pipelines.deploy.upsert_records import LOCK
from pipelines.serving.endpoint_requests import CAPTURED, names_begin
from pipelines.serving.rollout import BUSY, described
from trainyard.aws_clients import client, error_code, service_errors
from trainyard.common.errors import PlanError
from trainyard.language.statuses import ENDED
from trainyard.runs.execution import Execution

URI = re.compile(r"s3://[^\s\"'\\,;(){}\[\]<>]+")
"""An address in any text; one that is cut too early keeps more than it names."""
_EXECUTION = re.compile(r"arn:[\w-]+:sagemaker:[\w-]+:\d{12}:pipeline/[\w.-]+/execution/\w+")
JOBS = ("ProcessingJob", "TrainingJob", "TransformJob", "HyperParameterTuningJob")
MISSING = ("ValidationException", "ResourceNotFound", "ResourceNotFoundException")


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployed:
    """What deployments at the recipe's endpoint left."""

    endpoint: str

    status: str | None
    """Status of the endpoint; None if it is not there."""

    kept_by: str
    """What the endpoint stays for; empty if it is to be removed, or not there."""

    kept: tuple[str, ...]
    """Names of models and configurations of packages that are registered."""

    configs: tuple[str, ...]
    models: tuple[str, ...]
    alarms: tuple[str, ...]
    """Names of what serves a package that is not registered any more."""

    @property
    def removed(self) -> tuple[str, ...]:
        """Return the names of all three, each once: a model and its configuration have one."""
        return (*dict.fromkeys((*self.configs, *self.models, *self.alarms)),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """Everything that upserts, runs and deployments of one pipeline left in an account."""

    removed: dict[str, int]
    """Key of an object that nothing rests on → bytes."""

    kept: dict[str, int]
    """Key of an object that a model rests on → bytes."""

    captured: dict[str, int]
    """Key of an object with captured requests → bytes; it is kept."""

    models: list[str]
    """ARNs of the model packages and models that rest on something here."""

    executions: list[str]
    """ARNs of the pipeline's executions that registered one of these."""

    packages: int
    """Number of packages in the pipeline's group."""

    exists: bool
    """True if the pipeline is there."""

    deployed: Deployed | None
    """None for a recipe without an endpoint."""


def contents(
    name: str, group: str, region: str, bucket: str, prefix: str, endpoint: str | None = None
) -> Contents:
    """Return what pipeline ``name`` left: its objects are those below ``prefix``, and ``endpoint``
    serves the packages of its ``group``.

    Raises:
        PlanError: an execution of the pipeline, or a deployment at the endpoint, has not ended.
        ServiceError: something cannot be read, so that it is not known what models rest on.
    """
    root = f"s3://{bucket}/{prefix}/"
    with service_errors(f"reading what pipeline {name} left"):
        sagemaker = client("sagemaker", region)
        own = _ended(sagemaker, name)
        packages = list(described_packages(sagemaker, group))
        deployed = _deployed(sagemaker, region, endpoint, group, {arn for arn, _ in packages})
        gone = deployed.models if deployed else ()
        used = [one for one in described_models(sagemaker) if one[0].rpartition("/")[2] not in gone]
        models, executions, named = [], set(), set()
        for arn, description in [*packages, *used]:
            uses, ours = rests_on(sagemaker, description, name, region, root)
            if uses:
                models.append(arn)
                named |= uses
                executions |= ours
        found = {f"{prefix}/{key}": size
                 for key, (size, _) in listing(client("s3", region), bucket, prefix)
                 if key != f"definitions/{LOCK}"}  # fmt: skip
    captured = {key: found.pop(key) for key in [*found] if key.startswith(f"{prefix}/{CAPTURED}/")}
    heads = tuple(uri.removeprefix(f"s3://{bucket}/") for uri in named)
    return Contents(
        removed={key: size for key, size in found.items() if not key.startswith(heads)},
        kept={key: size for key, size in found.items() if key.startswith(heads)},
        captured=captured,
        models=models,
        executions=sorted(executions.intersection(own or ())),
        packages=sum(f"/{group}/" in arn or arn.startswith(f"{group}/") for arn, _ in packages),
        exists=own is not None,
        deployed=deployed,
    )


def _deployed(
    sagemaker: Any, region: str, endpoint: str | None, group: str, registered: Collection[str]
) -> Deployed | None:
    if endpoint is None:
        return None
    group = group.rpartition("/")[2]
    start = names_begin(endpoint, group)
    versions = [arn.rpartition("/")[2] for arn in registered if f":model-package/{group}/" in arn]
    cloudwatch = client("cloudwatch", region)
    with_start, begin = {"NameContains": start}, {"AlarmNamePrefix": start}
    names = {
        "configs": _listed(sagemaker, "list_endpoint_configs", "EndpointConfigName", **with_start),
        "models": _listed(sagemaker, "list_models", "ModelName", **with_start),
        "alarms": _listed(cloudwatch, "describe_alarms", "AlarmName", **begin),
    }
    form = re.compile(rf"{re.escape(start)}(\d+)(-\w+)?")
    found = {kind: {each: match[1] for each in all_ if (match := form.fullmatch(each))}
             for kind, all_ in names.items()}  # fmt: skip
    there = described(sagemaker, endpoint)
    if there and there["EndpointStatus"] in BUSY:
        raise PlanError(f"endpoint {endpoint}: is {there['EndpointStatus']}: wait for its end")
    config = there["EndpointConfigName"] if there else ""
    kept_by = ""
    if there and config not in found["configs"]:
        kept_by = f"it serves {config}, which no deployment of group {group} made"
    elif there and found["configs"][config] in versions:
        kept_by = f"it serves {group}/{found['configs'][config]}, which is registered"
    kept = {
        each for all_ in found.values() for each, version in all_.items() if version in versions
    }
    return Deployed(
        endpoint=endpoint,
        status=there["EndpointStatus"] if there else None,
        kept_by=kept_by,
        kept=tuple(sorted(kept)),
        **{kind: tuple(sorted({*all_} - kept)) for kind, all_ in found.items()},
    )


def _listed(client_: Any, operation: str, member: str, **request: str) -> Iterator[str]:
    for page in client_.get_paginator(operation).paginate(**request):
        for items in page.values():
            if isinstance(items, list):
                yield from (one[member] for one in items)


def rests_on(
    sagemaker: Any, description: str, name: str, region: str, root: str
) -> tuple[set[str], set[str]]:
    """Return what a described package or model, or the execution that a text names, rests on: URIs
    below ``root``, and ARNs of executions of pipeline ``name``.
    """
    runs = set(_EXECUTION.findall(description))
    jobs = [job for run in sorted(runs) for job in _jobs(sagemaker, run, region)]
    uris = {uri for text in (description, *jobs) for uri in URI.findall(text)}
    uses = {uri for uri in uris if uri.startswith(root) and uri != root}
    ours = {run for run in runs if f":pipeline/{name}/" in run}
    return uses | {f"{root}runs/{run.rpartition('/')[2]}/" for run in ours}, ours


def executions_of(sagemaker: Any, name: str) -> list[dict[str, Any]] | None:
    """Return the summaries of the pipeline's executions; None when the pipeline does not exist."""
    try:
        pages = sagemaker.get_paginator("list_pipeline_executions").paginate(PipelineName=name)
        return [run for page in pages for run in page["PipelineExecutionSummaries"]]
    except ClientError as error:
        if error_code(error) in MISSING:
            return None
        raise


def _ended(sagemaker: Any, name: str) -> list[str] | None:
    """Return the ARNs of the pipeline's executions; None when the pipeline does not exist."""
    found = executions_of(sagemaker, name)
    if found is None:
        return None
    for run in found:
        if run["PipelineExecutionStatus"] not in ENDED:
            raise PlanError(
                f"pipeline {name}: execution {run['PipelineExecutionArn']} is "
                f"{run['PipelineExecutionStatus']}: wait for its end, or stop it (aws sagemaker "
                "stop-pipeline-execution)"
            )
    return [run["PipelineExecutionArn"] for run in found]


def described_packages(sagemaker: Any, group: str) -> Iterator[tuple[str, str]]:
    """Iterate over (ARN, description) of the packages of every group that can be listed, and of
    ``group``, which may be another account's.
    """
    pages = sagemaker.get_paginator("list_model_package_groups").paginate()
    found = [item for page in pages for item in page["ModelPackageGroupSummaryList"]]
    names = [item["ModelPackageGroupName"] for item in found]
    for each in dict.fromkeys([*names, *([group] if ":" in group else [])]):
        pages = sagemaker.get_paginator("list_model_packages").paginate(ModelPackageGroupName=each)
        for page in pages:
            for item in page["ModelPackageSummaryList"]:
                arn = item["ModelPackageArn"]
                described = sagemaker.describe_model_package(ModelPackageName=arn)
                yield arn, json.dumps(described, default=str)


def described_models(sagemaker: Any) -> Iterator[tuple[str, str]]:
    """Iterate over (ARN, description) of every model."""
    for page in sagemaker.get_paginator("list_models").paginate():
        for item in page["Models"]:
            described = sagemaker.describe_model(ModelName=item["ModelName"])
            yield item["ModelArn"], json.dumps(described, default=str)


def _jobs(sagemaker: Any, execution: str, region: str) -> Iterator[str]:
    """Iterate over the descriptions of the execution's jobs, and of those that its cached steps
    used. An execution ends with its pipeline, but not its jobs, whose names hold its ID.
    """
    try:
        sagemaker.describe_pipeline_execution(PipelineExecutionArn=execution)
    except ClientError as error:
        if error_code(error) not in MISSING:
            raise
        jobs = list(_jobs_by_name(sagemaker, execution.rpartition("/")[2]))
    else:
        jobs = [job for step in Execution(execution, region).steps() if (job := step.job)]
    for kind, name in jobs:
        describe = getattr(sagemaker, f"describe_{xform_name(kind)}")
        yield json.dumps(describe(**{f"{kind}Name": name}), default=str)


def _jobs_by_name(sagemaker: Any, part: str) -> Iterator[tuple[str, str]]:
    for kind in JOBS:
        pages = sagemaker.get_paginator(f"list_{xform_name(kind)}s").paginate(NameContains=part)
        for page in pages:
            yield from ((kind, item[f"{kind}Name"]) for item in page[f"{kind}Summaries"])
