"""Show what an update of a pipeline would change, and what its next run would cost.

trainyard plan definition.json --pipeline NAME   # against what is deployed
trainyard plan --pipeline NAME                   # the next run of what is deployed
trainyard plan definition.json                   # a pipeline that is not deployed; calls no AWS API

Changes nothing. Exit status 0: no change; 2: changes; 1: an error.
"""

import json
from dataclasses import replace

import typer

from trainyard.aws_clients import client, service_errors
from trainyard.common.errors import DefinitionError
from trainyard.definition_source import (
    DefinitionArgument,
    PipelineOption,
    RegionOption,
    deployed_pipeline,
    read_definition,
)
from trainyard.local_state import served
from trainyard.plan.deployed_pipeline import State, describe
from trainyard.plan.execution_history import History
from trainyard.plan.overwritten_data import overwritten
from trainyard.plan.pipeline_plan import Plan, complete
from trainyard.plan.plan_display import show
from trainyard.plan.prices import load
from trainyard.validate import refuse_errors
from trainyard.validate.finding_display import JsonOption

CHANGES = 2


@served()
def main(
    definition: DefinitionArgument = None,
    pipeline: PipelineOption = None,
    region: RegionOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what updating a pipeline would change, and what its next run would do and cost."""
    if definition is not None:
        body, name = read_definition(definition), pipeline or definition.stem
    elif pipeline is not None:
        body, name = deployed_pipeline(pipeline, region).state.definition, pipeline
    else:
        raise DefinitionError("give a definition's JSON file, --pipeline NAME, or both")
    refuse_errors(body, str(definition or pipeline))
    plan = _made(body, name, region, is_known=pipeline is not None)
    if as_json:
        print(json.dumps(plan.as_json(), indent=1))
    else:
        show(plan)
    raise typer.Exit(CHANGES if plan.deployed is None or plan.diff else 0)


def _made(body: str, name: str, region: str | None, *, is_known: bool) -> Plan:
    """Return the plan of a pipeline that only gets the definition ``body``."""
    with service_errors(f"planning pipeline {name}"):
        sagemaker, s3 = client("sagemaker", region), client("s3", region)
        there = describe(sagemaker, name) if is_known else None
        wanted = replace(there.state, definition=body) if there else State(name, body)
        history = History(sagemaker, name if there else None, s3=s3)
        plan = complete(wanted, there, history, load(sagemaker.meta.region_name))
        found = overwritten(s3, wanted.document, plan.outcomes)
        return replace(plan, overwritten=tuple(found))
