"""Find the next instance type for a run whose training got no capacity."""

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from pipelines.compile.provenance_asset import recorded_recipe
from trainyard.aws_clients import client, service_errors
from trainyard.language.parameters import values
from trainyard.language.retries import CAPACITY
from trainyard.plan.cache_prediction import Outcome
from trainyard.plan.execution_history import History
from trainyard.plan.pipeline_plan import started_with
from trainyard.plan.prices import Prices
from trainyard.plan.run_cost import estimate, total
from trainyard.runs.execution import Execution

TYPE = "TrainInstanceType"
"""The pipeline parameter that a fallback changes."""

STEP = "Train"


def fallbacks(recipe: Mapping[str, Any] | None) -> tuple[str, ...]:
    """The instance types that a recorded recipe falls back to, in its order."""
    return tuple(((recipe or {}).get("train") or {}).get("fallback_instance_types") or ())


def next_type(arn: str, earlier_types: Collection[str], region: str | None) -> str | None:
    """Return the type that the training of a failed execution is to be started on next; None where
    it did not fail for lack of capacity, or its pipeline's recipe has no other type to try.

    Args:
        earlier_types: types that this run was started on before, by name; the type that the
            execution itself was started on is added.

    Raises:
        ServiceError: the execution or its recipe cannot be read.
    """
    if not _without_capacity(Execution(arn, region)):
        return None
    with service_errors(f"reading the definition of {arn}"):
        sagemaker = client("sagemaker", region)
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
    now = values(document, parameters).get(TYPE)
    recipe = recorded_recipe(client("s3", region), document)
    return next((name for name in fallbacks(recipe) if name not in {*earlier_types, now}), None)


def _without_capacity(execution: Execution) -> bool:
    failed_steps = (s for s in execution.steps() if s.name == STEP and s.status == "Failed")
    return any(cause in step.reason for step in failed_steps for cause in CAPACITY.failures)


def remarks(
    document: Mapping[str, Any],
    parameters: Mapping[str, str],
    types: Collection[str],
    outcomes: Collection[Outcome],
    history: History,
    prices: Prices,
) -> Iterator[str]:
    """Yield a plan's line for each type that a run falls back to: what the run may cost then."""
    for name in types:
        run = started_with(document, {**parameters, TYPE: name})
        costs = estimate(run, list(outcomes), history, prices)
        most = total(run, costs).usd_limit
        usd = f"${most:,.2f}" if most is not None else "an unknown sum"
        about = "~" if most is not None and any(cost.estimated for cost in costs) else ""
        yield f"without capacity, on {name} (start --wait): at most {about}{usd} for the run"
