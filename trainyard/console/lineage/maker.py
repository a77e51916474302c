"""The run that a package is of: the one that its metadata name, or that trained its model."""

import re
from collections.abc import Mapping
from typing import Any

from trainyard.common.errors import ServiceError
from trainyard.console.account import Account
from trainyard.console.lineage.jobs import writer_of
from trainyard.console.logs.streams import tuning_of
from trainyard.console.registry import models_of
from trainyard.runs.execution import Step
from trainyard.service import service_errors

_OF_PIPELINE = re.compile(r"(?:pipelines-)?(?P<execution>[a-z0-9]{12})-")
"""How SageMaker names the jobs of an execution; those of a tuning lack the first word."""

_EXECUTION = re.compile(r"arn:[^/]+:pipeline/(?P<pipeline>[^/]+)/execution/(?P<execution>[^/]+)")

REMEMBERED = 600.0


def named(package: Mapping[str, Any]) -> tuple[str, str] | None:
    """(pipeline, id) of the execution that the package's metadata name."""
    told = [
        (package.get("MetadataProperties") or {}).get("GeneratedBy"),
        *(package.get("CustomerMetadataProperties") or {}).values(),
    ]
    return next((run for arn in told if isinstance(arn, str) and (run := _place(arn))), None)


def trained(account: Account, package: Mapping[str, Any]) -> tuple[str, str] | None:
    """(pipeline, id) of the execution whose step trained the package's model, by the name of the
    job that wrote it; None where no execution that the service finds says that the job is its own.
    """
    models = tuple(models_of(package))

    def read() -> tuple[str, str] | None:
        try:
            return next((run for uri in models if (run := _of_model(account, uri))), None)
        except ServiceError:  # who may not search is told less
            return None

    return account.lately(("lineage: trained", models), read, REMEMBERED)


def _of_model(account: Account, uri: str) -> tuple[str, str] | None:
    job = writer_of(account, uri)
    match = _OF_PIPELINE.match(job.name) if job else None
    if job is None or match is None:
        return None
    run = _found(account, match["execution"])
    if run is None:
        return None
    steps = [step for step in account.snapshot(*run).steps if not step.source]
    return run if any(_is_of(job.name, step) for step in steps) else None


def _is_of(job: str, step: Step) -> bool:
    """Whether it is the step's training job, or one of those of its tuning."""
    tuning = tuning_of(step)
    return step.job == ("TrainingJob", job) or bool(tuning and job.startswith(f"{tuning}-"))


def _found(account: Account, execution: str) -> tuple[str, str] | None:
    """The execution with that id, of whatever pipeline."""
    wanted = {"Name": "PipelineExecutionArn", "Operator": "Contains", "Value": execution}
    with service_errors(f"searching for execution {execution}"):
        answer = account.sagemaker.search(
            Resource="PipelineExecution", SearchExpression={"Filters": [wanted]}
        )
    records = [one.get("PipelineExecution") or {} for one in answer.get("Results") or ()]
    places = [_place(str(one.get("PipelineExecutionArn", ""))) for one in records]
    return next((run for run in places if run and run[1] == execution), None)


def _place(arn: str) -> tuple[str, str] | None:
    found = _EXECUTION.fullmatch(arn)
    return (found["pipeline"], found["execution"]) if found else None
