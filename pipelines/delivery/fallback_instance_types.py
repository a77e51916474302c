"""The next instance type for an execution whose training job got no capacity.

This is a separate module because starting and approving use it without the advice.
"""

import json
from collections.abc import Collection, Mapping
from typing import Any

from pipelines.compile.provenance_asset import read_recorded_recipe
from trainyard.aws_clients import create_client, service_errors
from trainyard.language.expressions import resolve_parameters
from trainyard.language.retries import CAPACITY
from trainyard.runs.execution import Execution

TYPE = "TrainInstanceType"
"""Name of the pipeline parameter that a fallback changes."""

STEP = "Train"


def list_fallbacks(recipe: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return the instance types that a recorded recipe falls back to, in its order."""
    return tuple(((recipe or {}).get("train") or {}).get("fallback_instance_types") or ())


def choose_next_type(arn: str, earlier_types: Collection[str], region: str | None) -> str | None:
    """Return the instance type on which to start the training of a failed execution again.

    Return None if it did not fail because of missing capacity, or if the recipe of its pipeline has
    no other type to try.

    Args:
        arn: ARN of the execution.
        earlier_types: types on which it was started before; the type of this execution is added.
        region: AWS region; None for the environment's.

    Raises:
        ServiceError: the execution or its recipe cannot be read.
    """
    steps = Execution(arn, region).list_steps()
    failed_steps = (step for step in steps if step.name == STEP and step.status == "Failed")
    if not any(cause in step.reason for step in failed_steps for cause in CAPACITY.failures):
        return None
    with service_errors(f"reading the definition of {arn}"):
        sagemaker = create_client("sagemaker", region)
        answer = sagemaker.describe_pipeline_definition_for_execution(PipelineExecutionArn=arn)
        pages = sagemaker.get_paginator("list_pipeline_parameters_for_execution").paginate(
            PipelineExecutionArn=arn
        )
        parameters = {
            parameter["Name"]: parameter["Value"]
            for page in pages
            for parameter in page["PipelineParameters"]
        }
    document = json.loads(answer["PipelineDefinition"])
    current_type = resolve_parameters(document, parameters).get(TYPE)
    recipe = read_recorded_recipe(create_client("s3", region), document)
    tried_types = {*earlier_types, current_type}
    return next((name for name in list_fallbacks(recipe) if name not in tried_types), None)
