"""Callback steps that wait for an answer, on AWS or the emulator: list and answer them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from trainyard.aws_clients import client, service_errors
from trainyard.runs.execution import Execution

RUNS = ("Executing", "Stopping")


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A callback step that waits."""

    token: str
    step: str
    execution: str
    queue: str
    since: datetime | None
    stopping: bool
    """True if its execution waits for the answer to stop."""


def waiting(region: str | None = None) -> Iterator[Waiting]:
    """Iterate over every callback step that waits, of every pipeline.

    Raises:
        ServiceError: AWS cannot be reached, or refuses.
    """
    with service_errors("looking for callbacks"):
        sagemaker = client("sagemaker", region)
        running = list(_running(sagemaker))
    for arn in running:
        for step in Execution(arn, region).steps():
            callback = step.metadata.get("Callback", {})
            if callback and step.status in RUNS:
                yield Waiting(
                    token=callback["CallbackToken"],
                    step=step.name,
                    execution=arn,
                    queue=callback.get("SqsQueueUrl", ""),
                    since=step.started,
                    stopping=step.status == "Stopping",
                )


def report_success(token: str, outputs: Mapping[str, str], region: str | None = None) -> str:
    """Answer with these output parameters; return the ARN of the execution, which continues.

    Raises:
        ServiceError: no step waits with that token, or it needs other outputs.
    """
    output_parameters = [{"Name": name, "Value": value} for name, value in outputs.items()]
    return _send("success", region, CallbackToken=token, OutputParameters=output_parameters)


def fail(token: str, reason: str, region: str | None = None) -> str:
    """Answer that the step failed; return the ARN of its execution.

    Raises:
        ServiceError: no step waits with that token.
    """
    return _send("failure", region, CallbackToken=token, FailureReason=reason)


def _send(how: str, region: str | None, **request: Any) -> str:
    with service_errors(f"answering callback {request['CallbackToken']}"):
        send = getattr(client("sagemaker", region), f"send_pipeline_execution_step_{how}")
        return send(**request)["PipelineExecutionArn"]


def _running(sagemaker: Any) -> Iterator[str]:
    """Iterate over the ARNs of executions that have not ended."""
    pages = sagemaker.get_paginator("list_pipelines").paginate()
    names = [item["PipelineName"] for page in pages for item in page["PipelineSummaries"]]
    listing = sagemaker.get_paginator("list_pipeline_executions")
    for name in names:
        for page in listing.paginate(PipelineName=name):
            for item in page["PipelineExecutionSummaries"]:
                if item["PipelineExecutionStatus"] in RUNS:
                    yield item["PipelineExecutionArn"]
