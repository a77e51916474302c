"""Every execution of some pipelines, with its parameters.

The List operations are up to date, but tell no parameters and no reason of a failure; Search tells
both, 100 executions a call, and on AWS a moment late. What Search does not know as it is now is
described one by one.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from trainyard.service import service_errors

PAGE = 100
"""The most that Search and the List operations answer at once (botocore: MaxResults)."""

RESOURCE = "PipelineExecution"


def pipelines(sagemaker: Any, name: str | None = None) -> list[dict[str, Any]]:
    """DescribePipeline's answers of all pipelines, or of that one.

    Raises:
        ServiceError: there is none of that name, or AWS refuses.
    """
    with service_errors(f"reading pipeline {name}" if name else "listing the pipelines"):
        pages = sagemaker.get_paginator("list_pipelines").paginate() if name is None else ()
        listed = [one for page in pages for one in page.get("PipelineSummaries", ())]
        names = [name] if name else [one["PipelineName"] for one in listed if "PipelineName" in one]
        return [{"PipelineName": each, **_pipeline(sagemaker, each)} for each in names]


def _pipeline(sagemaker: Any, name: str) -> dict[str, Any]:
    found: dict[str, Any] = sagemaker.describe_pipeline(PipelineName=name)
    return found


def executions(sagemaker: Any, pipeline: str) -> list[dict[str, Any]]:
    """ListPipelineExecutions' summaries that have an ARN, the newest first.

    Raises:
        ServiceError: there is no such pipeline, or AWS refuses.
    """
    with service_errors(f"listing the executions of {pipeline}"):
        pages = sagemaker.get_paginator("list_pipeline_executions").paginate(
            PipelineName=pipeline, SortOrder="Descending", PaginationConfig={"PageSize": PAGE}
        )
        found = [one for page in pages for one in page.get("PipelineExecutionSummaries", ())]
    return [one for one in found if one.get("PipelineExecutionArn")]


def records(
    sagemaker: Any, told: list[dict[str, Any]], arn: str | None = None
) -> Iterator[dict[str, Any]]:
    """Search's record of each execution in ``told``, or what Describe answers in its place.

    Args:
        told: ListPipelineExecutions' summaries.
        arn: of their pipeline, if they are of one.

    Raises:
        ServiceError: AWS refuses.
    """
    with service_errors("reading the executions"):
        known = {one.get("PipelineExecutionArn"): one for one in _searched(sagemaker, arn)}
        for summary in told:
            record = known.get(summary["PipelineExecutionArn"])
            status = summary.get("PipelineExecutionStatus")
            if record is None or record.get("PipelineExecutionStatus") != status:
                record = _described(sagemaker, summary["PipelineExecutionArn"])
            yield {**summary, **record}


def _searched(sagemaker: Any, arn: str | None) -> Iterator[Mapping[str, Any]]:
    request: dict[str, Any] = {"Resource": RESOURCE, "MaxResults": PAGE}
    if arn:
        only = {"Name": "PipelineArn", "Operator": "Equals", "Value": arn}
        request["SearchExpression"] = {"Filters": [only]}
    for page in sagemaker.get_paginator("search").paginate(**request):
        yield from (found.get(RESOURCE) or {} for found in page.get("Results", ()))


def _described(sagemaker: Any, arn: str) -> dict[str, Any]:
    pages = sagemaker.get_paginator("list_pipeline_parameters_for_execution").paginate(
        PipelineExecutionArn=arn
    )
    given = [one for page in pages for one in page.get("PipelineParameters", ())]
    found: dict[str, Any] = sagemaker.describe_pipeline_execution(PipelineExecutionArn=arn)
    return {**found, "PipelineParameters": given}
